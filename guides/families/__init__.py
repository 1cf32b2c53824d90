"""Posterior families of the guides, on arrays of any framework."""
