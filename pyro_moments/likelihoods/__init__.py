"""Expected log-probabilities and predictive moments of Pyro's distributions."""

from pyro_moments.likelihoods import categorical, expected  # noqa: F401  (register the rules)
