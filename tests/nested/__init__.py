"""Nested inference."""
