"""Moments and densities in closed form: of what a model observes, of any function."""
