"""Guides, priors and distributions in Pyro's conventions."""
