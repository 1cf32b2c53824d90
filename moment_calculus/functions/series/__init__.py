"""Moments by series and fits, where closed forms lose precision."""
