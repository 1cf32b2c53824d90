"""Latent sites that are drawn, for objectives and predictions by particles."""
