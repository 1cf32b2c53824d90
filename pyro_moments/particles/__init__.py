"""Run a model as particles, which draw latent sites as late as possible."""
