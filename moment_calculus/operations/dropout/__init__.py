"""Dropout: multiplication of values, and of the inputs of latent weights, by independent noise."""
