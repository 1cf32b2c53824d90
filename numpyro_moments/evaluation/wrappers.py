"""The distributions of NumPyro that are made around another one."""

from numpyro.distributions import ExpandedDistribution, Independent, MaskedDistribution

from moment_calculus.likelihoods.joint_powers import Wrappers

WRAPPERS = Wrappers(Independent, MaskedDistribution, ExpandedDistribution)
