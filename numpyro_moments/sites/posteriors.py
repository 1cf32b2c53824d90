"""Read the moments of a guide site from its distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions import transforms

from guides.families.posteriors import Posteriors
from guides.numpyro.mc_dropout import DroppedWeight
from guides.numpyro.scales import PrecompiledNormal
from guides.numpyro.tridiagonal import TridiagonalNormal
from moment_calculus.functions.table import Activation, Integrated, activation
from numpyro_moments.likelihoods.structure import random_leaves
from numpyro_moments.rules.table import is_random

WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
_ACTIVATIONS = {
    transforms.ExpTransform: "exp",
    transforms.SigmoidTransform: "sigmoid",
    transforms.SoftplusTransform: "softplus",
}


class _InNumPyro(Posteriors):
    framework = "NumPyro"
    wrappers, mask = WRAPPERS, dist.MaskedDistribution
    normals = (dist.Normal, PrecompiledNormal)
    chain, dropped, delta = TridiagonalNormal, DroppedWeight, dist.Delta
    full_rank = (dist.MultivariateNormal, dist.LowRankMultivariateNormal)
    transformed = dist.TransformedDistribution
    affine, composed = transforms.AffineTransform, transforms.ComposeTransform
    identity = (transforms.IdentityTransform,)

    def value(self, parameter: Any) -> Any:
        return parameter if is_random(parameter) else jnp.asarray(parameter)

    def random_parameters(self, part: Any) -> list[Any]:
        return random_leaves(part)

    def is_one_to_one(self, transform: Any) -> bool:
        if isinstance(transform, transforms.AffineTransform):
            return True
        arrays = any(jnp.ndim(part) for part in jax.tree.leaves(transform))
        return not arrays and not isinstance(transform, transforms.AbsTransform)

    def function_of(self, transform: Any) -> Activation:
        name = _ACTIVATIONS.get(type(transform))
        if name is None:
            return Integrated(transform.__call__, constants=None)
        return activation(name)

    def masked(self, terms: jax.Array, mask: Any) -> jax.Array:
        return jnp.where(mask, terms, 0.0)

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> jax.Array:
        return jnp.broadcast_to(array, shape)


POSTERIORS = _InNumPyro()
dropout_posterior = POSTERIORS.dropout_posterior
gaussian_base = POSTERIORS.gaussian_base
mixes_elements = POSTERIORS.mixes_elements
posterior_value = POSTERIORS.posterior_value
value_at_mean = POSTERIORS.value_at_mean
without_wrappers = POSTERIORS.without_wrappers
