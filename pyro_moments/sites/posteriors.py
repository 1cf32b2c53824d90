"""Read the moments of a guide site from its distribution."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask
from torch.distributions import transforms

from guides.families.posteriors import Posteriors
from guides.pyro.mc_dropout import DroppedWeight
from guides.pyro.tridiagonal import TridiagonalNormal
from moment_calculus.functions.table import Activation, Integrated, activation
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.likelihoods.structure import random_tensors

WRAPPERS = (torch.distributions.Independent, ExpandedDistribution, MaskedDistribution)
_ACTIVATIONS = {
    transforms.ExpTransform: "exp",
    transforms.SigmoidTransform: "sigmoid",
    transforms.SoftplusTransform: "softplus",
    dist.transforms.SoftplusTransform: "softplus",  # Pyro's own class
    transforms.TanhTransform: "tanh",
}


class _InPyro(Posteriors):
    framework = "Pyro"
    wrappers, mask = WRAPPERS, MaskedDistribution
    normals = (torch.distributions.Normal, dist.Normal)
    chain, dropped, delta = TridiagonalNormal, DroppedWeight, dist.Delta
    full_rank = (
        torch.distributions.MultivariateNormal,
        torch.distributions.LowRankMultivariateNormal,
    )
    transformed = torch.distributions.TransformedDistribution
    affine, composed = transforms.AffineTransform, transforms.ComposeTransform
    identity = ()

    def value(self, parameter: Any) -> Any:
        return unwrap(parameter)

    def random_parameters(self, part: Any) -> list[Any]:
        return [unwrap(tensor) for tensor in random_tensors(part)]

    def is_one_to_one(self, transform: Any) -> bool:
        return transform.bijective

    def function_of(self, transform: Any) -> Activation:
        name = _ACTIVATIONS.get(type(transform))
        # The bound method has a hash; transforms that compare by value have none.
        return Integrated(transform.__call__) if name is None else activation(name)

    def masked(self, terms: torch.Tensor, mask: Any) -> torch.Tensor:
        return scale_and_mask(terms, mask=mask)

    def broadcast(self, array: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return array if array.shape == shape else array.expand(shape)


POSTERIORS = _InPyro()
dropout_posterior = POSTERIORS.dropout_posterior
gaussian_base = POSTERIORS.gaussian_base
mixes_elements = POSTERIORS.mixes_elements
posterior_value = POSTERIORS.posterior_value
value_at_mean = POSTERIORS.value_at_mean
without_wrappers = POSTERIORS.without_wrappers
