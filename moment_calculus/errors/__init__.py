"""Errors and warnings of the library, with the user's line."""
