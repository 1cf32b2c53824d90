"""Linear response in Pyro: corrected moments from the curvature of the loss at its optimum."""
