"""Linear response: posterior covariances from the curvature of a loss at its optimum."""
