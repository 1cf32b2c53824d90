"""The independent oracle of the ELBO: NumPyro's own estimate from many vectorised samples."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoGuide
from numpyro.optim import Adam

from numpyro_moments import SVI, DeterministicELBO, DVIGuide
from numpyro_moments.sites.traces import bind
from tests.checks.jaxprs import by_numpy


def trace_elbo(
    model: Callable, guide: Callable, params: dict, *args: Any, samples: int = 4000
) -> tuple[float, float]:
    """Mean and standard error of Trace_ELBO's loss, from one draw of all sites each."""
    elbo = Trace_ELBO()

    @by_numpy
    @jax.vmap
    def loss(key):
        return elbo.loss(key, params, model, guide, *args)

    losses = np.asarray(loss(jax.random.split(jax.random.key(7), samples)), np.float64)
    return losses.mean(), losses.std() / math.sqrt(samples)


def train(
    model: Callable,
    guide: Callable,
    elbo: Any,
    *args: Any,
    steps: int = 150,
    learning_rate: float = 0.02,
) -> tuple[float, dict[str, Any]]:
    """Train with the elbo under test; its last loss and the parameters, by one compiled program."""
    svi = SVI(model, guide, Adam(learning_rate), elbo)
    state = by_numpy(lambda key: svi.init(key, *args))(jax.random.key(0))
    update = jax.jit(lambda state: svi.update(state, *args))
    for _ in range(steps):
        state, _ = update(state)
    return float(update(state)[1]), by_numpy(svi.get_params)(state)


def perturbed(guide: Callable, *args: Any, spread: float = 0.2) -> dict[str, Any]:
    """The guide's initial parameters, moved to nowhere special on the unconstrained space."""
    # The hosts' guides keep what they compute when they are first called.
    if isinstance(guide, AutoGuide) and not isinstance(guide, DVIGuide):
        guide = copy.deepcopy(guide)
    return by_numpy(lambda: _perturbed(guide, args, spread))()


def _perturbed(guide: Callable, args: tuple, spread: float) -> dict[str, Any]:
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace(*args)
    params = {}
    for name, site in trace.items():
        if site["type"] == "param":
            transform = biject_to(site["kwargs"].get("constraint", constraints.real))
            random = np.random.default_rng(len(name))
            free = jax.tree.map(
                lambda part, random=random: part + spread * random.normal(size=jnp.shape(part)),
                transform.inv(site["value"]),
            )
            params[name] = transform(free)
    return params


def both_losses(
    model: Callable,
    guide: Callable,
    *args: Any,
    elbo: Any = None,
    samples: int = 4000,
    spread: float = 0.2,
) -> tuple[float, float, float]:
    """Closed-form loss, mean and standard error of Trace_ELBO's; compiled as one program."""
    elbos = [elbo or DeterministicELBO()]
    (loss,), *sampled = all_losses(model, guide, *args, elbos=elbos, samples=samples, spread=spread)
    return loss, *sampled


def all_losses(
    model: Callable,
    guide: Callable,
    *args: Any,
    elbos: Sequence[Any],
    samples: int = 4000,
    spread: float = 0.2,
) -> tuple[list[float], float, float]:
    """The same of several closed forms."""
    bind(guide, model)

    @by_numpy
    def losses():
        params = perturbed(guide, *args, spread=spread)

        def sampled(key):
            return Trace_ELBO().loss(key, params, model, guide, *args)

        keys = jax.random.split(jax.random.key(7), samples)
        closed = [elbo.loss(jax.random.key(0), params, model, guide, *args) for elbo in elbos]
        return closed, jax.vmap(sampled)(keys)

    closed, draws = losses()
    draws = np.asarray(draws, np.float64)
    return list(map(float, closed)), draws.mean(), draws.std() / math.sqrt(samples)


def assert_equals_trace_elbo(
    *args: Any, share: float = 0.0, elbos: Sequence[Any] = (), **options: Any
) -> None:
    """Within four standard errors, and a share of the loss where Gaussians are matched."""
    elbos = elbos or [DeterministicELBO()]
    losses, expected, error = all_losses(*args, elbos=elbos, **options)
    for loss in losses:
        assert abs(loss - expected) < 4 * error + share * abs(expected), (loss, expected, error)
    assert error < 0.02 * abs(expected), "too few samples to tell"
