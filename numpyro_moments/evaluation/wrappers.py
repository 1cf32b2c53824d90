"""The distributions of NumPyro that are made around another one."""

from numpyro.distributions import ExpandedDistribution, Independent, MaskedDistribution

from moment_calculus.likelihoods import joint_powers

WRAPPERS = joint_powers.Wrappers(Independent, MaskedDistribution, ExpandedDistribution)
