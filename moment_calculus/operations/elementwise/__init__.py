"""Elementwise operations on live values."""
