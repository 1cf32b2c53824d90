"""Compile losses of Pyro programs, with gradients, into one graph for each signature."""
