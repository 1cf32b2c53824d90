"""Linear response: what the curvature of a deterministic loss tells beyond its optimum."""
