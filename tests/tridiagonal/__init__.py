"""Chains of weights, and the guide that is made of them."""
