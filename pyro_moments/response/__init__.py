"""Linear response in Pyro: what the curvature of the loss at its optimum tells."""
