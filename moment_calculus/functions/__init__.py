"""Elementwise functions with their moments under Gaussians."""
