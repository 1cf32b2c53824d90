"""Expected log-probabilities and predictive moments of Pyro's distributions."""
