"""Expected log-probabilities and predictive moments of NumPyro's distributions."""
