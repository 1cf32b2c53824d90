"""The same model with the same parameters: loss and gradients of both front ends agree."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pyro
import pytest
import torch
from numpyro.distributions import biject_to, constraints

import numpyro_moments
import pyro_moments
from moment_calculus.likelihoods.families import FAMILIES
from tests.cases.hosts import models
from tests.checks.general import QUICK

CASES = {
    "perceptron, full": (models.regression, "x y", "full"),
    "perceptron, diagonal": (models.regression, "x y", "diagonal"),
    "residual, full": (models.residual, "x y", "full"),
    "residual, diagonal": (models.residual, "x y", "diagonal"),
    "heteroscedastic, full": (models.heteroscedastic, "x y", "full"),
    "heteroscedastic, diagonal": (models.heteroscedastic, "x y", "diagonal"),
    "categorical, full": (models.categorical, "x classes", "full"),
    "categorical, diagonal": (models.categorical, "x classes", "diagonal"),
    "hierarchical": (models.hierarchical, "x groups y", "full"),
}
# In single precision each host is within 6e-6 of double precision, on either side.
TOLERANCES = {"float32": 2e-5, "float64": 1e-10}
Gradients = dict[str, np.ndarray]


@functools.cache
def parameters(model: Callable, arguments: str) -> dict[str, np.ndarray]:
    """Unconstrained parameters of a guide that is wide enough for every term to matter."""
    with precision("float64"):
        _, leaves = guide_and_parameters(
            pyro_moments.DeterministicELBO(), partial(model, models.PYRO), arrays(arguments)
        )
    random = np.random.default_rng(1)
    return {
        name: leaf.detach().numpy() + 0.1 * random.normal(size=leaf.shape)
        for name, leaf in leaves.items()
    }


def guide_and_parameters(
    elbo: Any, model: Callable, data: list[np.ndarray]
) -> tuple[Any, dict[str, torch.Tensor]]:
    """A guide of Pyro and its unconstrained parameters, by the names that NumPyro gives them."""
    pyro.clear_param_store()
    guide = pyro_moments.DVIGuide(init_scale=0.2)
    elbo.loss(model, guide, *map(torch.as_tensor, data))  # makes the parameters
    return guide, {
        f"{name.removesuffix('_unconstrained')}_auto_{role}": leaf
        for role, owner in (("loc", guide.locs), ("scale", guide.scales))
        for name, leaf in owner.named_parameters()
    }


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Both frameworks compute in it."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with jax.enable_x64(dtype == "float64"):
            yield
    finally:
        torch.set_default_dtype(default)


def arrays(names: str, dtype: str = "float64") -> list[np.ndarray]:
    """The data of a model, the floating-point numbers of it in the given precision."""
    found = [models.arrays()[name] for name in names.split()]
    return [array.astype(dtype) if array.dtype.kind == "f" else array for array in found]


def in_numpyro(
    model: Callable, data: list[np.ndarray], values: dict[str, np.ndarray], covariance: str
) -> tuple[float, Gradients]:
    elbo = numpyro_moments.DeterministicELBO(covariance=covariance)
    guide = numpyro_moments.DVIGuide(model)
    positive = biject_to(constraints.softplus_positive)

    @partial(jax.jit, compiler_options=QUICK)
    @jax.value_and_grad
    def loss(values: Any) -> Any:
        constrained = {
            name: positive(value) if name.endswith("_scale") else value
            for name, value in values.items()
        }
        return elbo.loss(jax.random.key(0), constrained, model, guide, *map(jnp.asarray, data))

    value, gradients = loss(values)
    return float(value), {name: np.asarray(g) for name, g in gradients.items()}


def in_pyro(
    model: Callable, data: list[np.ndarray], values: dict[str, np.ndarray], covariance: str
) -> tuple[float, Gradients]:
    elbo = pyro_moments.DeterministicELBO(covariance=covariance)
    tensors = [torch.as_tensor(array) for array in data]
    guide, leaves = guide_and_parameters(elbo, model, data)
    for name, value in values.items():
        leaves[name].data = torch.as_tensor(value)
    loss = elbo.differentiable_loss(model, guide, *tensors)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return loss.item(), {n: g.numpy() for n, g in zip(leaves, gradients, strict=True)}


# In single precision the diagonal ones, the perceptron and the hierarchy are enough.
ROWS = [("float64", name) for name in CASES]
ROWS += [("float32", name) for name in CASES if "diagonal" in name or name == "hierarchical"]
ROWS += [("float32", "perceptron, full")]


@pytest.mark.parametrize(("dtype", "name"), ROWS)
def test_loss_and_gradients_agree(name, dtype):
    model, arguments, covariance = CASES[name]
    data = arrays(arguments, dtype)
    values = {name: value.astype(dtype) for name, value in parameters(model, arguments).items()}
    with precision(dtype):
        ours = in_numpyro(partial(model, models.NUMPYRO), data, values, covariance)
        theirs = in_pyro(partial(model, models.PYRO), data, values, covariance)
    tolerance = TOLERANCES[dtype]
    assert ours[0] == pytest.approx(theirs[0], rel=tolerance)
    assert ours[1].keys() == theirs[1].keys()
    for parameter, gradient in theirs[1].items():
        size = np.abs(gradient).max()
        np.testing.assert_allclose(
            ours[1][parameter], gradient, rtol=0, atol=tolerance * size, err_msg=parameter
        )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_of_the_table_is_served_in_both_hosts(family):
    hosts = (pyro_moments, pyro.distributions), (numpyro_moments, numpyro.distributions)
    endings = ("Logits", "Probs") if family.odds else ("",)
    for front_end, distributions in hosts:
        names = [family.name + end for end in endings]
        kinds = [getattr(distributions, name, None) for name in names]
        kinds = list(filter(None, kinds)) or [getattr(distributions, family.name)]
        known = front_end.likelihoods.EXPECTED_LOG_PROB
        assert all(any(base in known for base in kind.__mro__) for kind in kinds)
