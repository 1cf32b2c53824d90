"""Derivatives in closed form, in place of those that a framework derives."""
