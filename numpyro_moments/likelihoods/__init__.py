"""Expected log-probabilities and predictive moments of NumPyro's distributions."""

from numpyro_moments.likelihoods import categorical, expected  # noqa: F401  (register the rules)
