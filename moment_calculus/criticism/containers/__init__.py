"""Draws of a posterior and what the model says of them, as ArviZ keeps them."""
