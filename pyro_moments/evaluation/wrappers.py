"""The distributions of Pyro that are made around another one."""

from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from torch.distributions import Independent

from moment_calculus.likelihoods import joint_powers

WRAPPERS = joint_powers.Wrappers(Independent, MaskedDistribution, ExpandedDistribution)
