"""Run a model with draws of its latent sites."""
