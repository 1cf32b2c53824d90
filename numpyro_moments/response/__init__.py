"""Linear response in NumPyro: what the curvature of the loss at its optimum tells."""
