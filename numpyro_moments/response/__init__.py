"""Linear response in NumPyro: corrected moments from the curvature of the loss at its optimum."""
