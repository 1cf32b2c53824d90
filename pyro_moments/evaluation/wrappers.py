"""The distributions of Pyro that are made around another one."""

from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from torch.distributions import Independent

from moment_calculus.likelihoods.joint_powers import Wrappers

WRAPPERS = Wrappers(Independent, MaskedDistribution, ExpandedDistribution)
