"""Nested inference: hyperparameters on a grid, a Gaussian of everything else at each point."""
