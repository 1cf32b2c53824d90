"""Parameters of a guide that Pyro trained, in NumPyro, where nothing is compiled for them."""

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
        carried[f"{site}_auto_{roles.removesuffix('s')}"] = _array(value)
    return carried


def _array(value: Any) -> jax.Array:
    """A copy, also of a tensor."""
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    return jnp.array(value)


def loss_and_slopes(
    objective: Any, model: Callable, guide: Any, params: Mapping[str, Any], *data: Any
) -> tuple[float, dict[str, np.ndarray]]:
    """NumPyro's loss at parameters of Pyro, and its derivatives by Pyro's names."""
    params = {name: _array(value) for name, value in params.items()}
    return by_numpy(jax.value_and_grad(_loss(objective, model, guide, *data)))(params)


def loss_and_newton_step(
    objective: Any, model: Callable, guide: Any, params: Mapping[str, Any], *data: Any
) -> tuple[float, float]:
    """NumPyro's loss at parameters of Pyro, and what a step of Newton's method would take off it.

    The second is ½ gᵀ H⁻¹ g: about 0 at an optimum, and NaN where the Hessian is not positive, from
    which NumPyro's own ``fit`` would go on.
    """
    flat, unravel = ravel_pytree({name: _array(value) for name, value in params.items()})
    of_params = _loss(objective, model, guide, *data)

    def derivatives(flat: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        loss = lambda flat: of_params(unravel(flat))  # noqa: E731
        return *jax.value_and_grad(loss)(flat), jax.hessian(loss)(flat)

    value, gradient, hessian = by_numpy(derivatives)(flat)
    if np.linalg.eigvalsh(hessian).min() <= 0:
        return float(value), float("nan")
    return float(value), float(gradient @ np.linalg.solve(hessian, gradient) / 2)


def _loss(objective: Any, model: Callable, guide: Any, *data: Any) -> Callable:
    key = jax.random.key(0)
    return lambda params: objective.loss(key, in_numpyro(params), model, guide, *data)
