"""Covariances that are computed backwards."""
