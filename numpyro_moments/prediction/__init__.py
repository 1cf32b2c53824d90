"""Predict what a model observes, and propagate moments through any function."""
