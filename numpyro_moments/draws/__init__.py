"""A model run with draws of its latent sites."""
