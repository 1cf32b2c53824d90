"""A model given its hyperparameters: what a front end supplies, and what of it is what."""
