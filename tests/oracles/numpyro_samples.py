"""The independent oracle of the ELBO: NumPyro's own estimate from many vectorised samples."""

import copy
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoGuide

from numpyro_moments import DeterministicELBO, DVIGuide
from numpyro_moments.sites.traces import bind
from tests.checks.jaxprs import by_numpy


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
    model: Callable, guide: Callable, *args: Any, elbo: Any = None, samples: int = 4000
) -> tuple[float, float, float]:
    """Closed-form loss, mean and standard error of Trace_ELBO's; compiled as one program."""
    bind(guide, model)
    elbo = elbo or DeterministicELBO()

    @by_numpy
    def losses():
        params = perturbed(guide, *args)

        def sampled(key):
            return Trace_ELBO().loss(key, params, model, guide, *args)

        keys = jax.random.split(jax.random.key(7), samples)
        closed = elbo.loss(jax.random.key(0), params, model, guide, *args)
        return closed, jax.vmap(sampled)(keys)

    closed, draws = losses()
    draws = np.asarray(draws, np.float64)
    return float(closed), draws.mean(), draws.std() / math.sqrt(samples)


def assert_equals_trace_elbo(*args: Any, share: float = 0.0) -> None:
    """Within four standard errors, and a share where Gaussians are matched."""
    loss, expected, error = both_losses(*args)
    assert abs(loss - expected) < 4 * error + share * abs(expected), (loss, expected, error)
    assert error < 0.02 * abs(expected), "too few samples to tell"
