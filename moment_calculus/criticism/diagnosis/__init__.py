"""Whether an approximation can be trusted for one model and its data, in words."""
