"""Products with independent noise: dropout of values, and of the inputs of a latent weight."""
