"""Judge in words whether an approximation can be trusted for a model and its data."""
