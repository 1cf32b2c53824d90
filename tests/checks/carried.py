"""Parameters of a guide that Pyro trained, in NumPyro, where nothing is compiled for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.flatten_util import ravel_pytree

from tests.checks.jaxprs import by_numpy


def in_numpyro(params: Mapping[str, Any]) -> dict[str, jax.Array]:
    """``w_auto_loc`` of ``DVIGuide.locs.w``, and so on."""
    carried = {}
    for name, value in params.items():
        _, roles, site = name.split(".", 2)
        plain = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        carried[f"{site}_auto_{roles.removesuffix('s')}"] = jnp.asarray(plain.copy())
    return carried


def loss_in_numpyro(
    objective: Any, model: Callable, guide: Any, params: Mapping[str, Any], *data: Any
) -> tuple[float, float]:
    """NumPyro's loss at parameters of Pyro, and what a step of Newton's method would take off it.

    The second is ½ gᵀ H⁻¹ g: about 0 at an optimum, and NaN where the Hessian is not positive, from
    which NumPyro's own ``fit`` would go on.
    """
    flat, unravel = ravel_pytree(in_numpyro(params))

    def loss(flat: jax.Array) -> jax.Array:
        return objective.loss(jax.random.key(0), unravel(flat), model, guide, *data)

    def derivatives(flat: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return *jax.value_and_grad(loss)(flat), jax.hessian(loss)(flat)

    value, gradient, hessian = by_numpy(derivatives)(flat)
    if np.linalg.eigvalsh(hessian).min() <= 0:
        return float(value), float("nan")
    return float(value), float(gradient @ np.linalg.solve(hessian, gradient) / 2)
