"""Where to evaluate a posterior of a few hyperparameters, and its shape between the points."""
