"""Steps in NumPyro under jax.jit: the closed-form ELBO against sampled ones and plain networks."""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.optim import Adam
from step_limits import PASS, PRODUCTS, operands, passed, products, to_limit
from timing import (
    BY_DRAWS,
    DROPOUT,
    ENERGY,
    LARGE,
    PARTICLES,
    SMALL,
    Step,
    Table,
    dropout_limits,
    measure,
)
from timing import SAMPLED as DRAWS

from numpyro_moments import BBAlphaELBO, DeterministicELBO, DVIGuide, MCDropoutGuide

FULL, DIAGONAL = "DeterministicELBO full", "DeterministicELBO diagonal"
SAMPLED = "Trace_ELBO + AutoNormal"
ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu (tanh)": jax.nn.gelu,
    "gelu (erf)": partial(jax.nn.gelu, approximate=False),
}
SIZES, CLASSIFIER, BATCH = (13, 50, 1), (784, 400, 400, 10), 128
TWO_HEADS = "13-50-2, mean and scale, batch 64"
COMPILING = 3.0  # ratio of the times that tracing and compiling may take


def tables(options: argparse.Namespace) -> Iterator[Table]:
    for title, model in (
        (SMALL, regression),
        (TWO_HEADS, partial(two_heads, (*SIZES[:-1], 2), jax.nn.relu)),
    ):
        steps, limits = regression_steps(model), {FULL: 1.0, DIAGONAL: 1.0}
        yield from _both_tables(title, steps, options.repeats, limits, list(limits))
    draws = sampled_steps()
    yield Table(DRAWS, measure(draws, options.repeats, statistics.median), {BY_DRAWS: 1.0})
    found = measure(dropout_steps(), options.repeats, statistics.median)
    yield Table(DROPOUT, found, dropout_limits(found))
    if not options.small_only:
        repeats = max(3, options.repeats // 8)
        for name in ACTIVATIONS:
            steps = classification_steps(ACTIVATIONS[name])
            found, first = _both_tables(f"{LARGE}, {name}", steps, repeats, {}, [DIAGONAL])
            yield from (found, to_limit(found.title, found.seconds, DIAGONAL), first)


def _both_tables(
    title: str,
    compiled: dict[str, tuple[Step, float]],
    repeats: int,
    limits: dict[str, float],
    quick: list[str],
) -> list[Table]:
    """Times of a step and of compiling it, which those that are to be quick must not take long."""
    steps = {name: step for name, (step, _) in compiled.items()}
    alone = PRODUCTS, PASS
    compiling = {name: seconds for name, (_, seconds) in compiled.items() if name not in alone}
    compiling = {SAMPLED: compiling.pop(SAMPLED), **compiling}  # the reference first
    return [
        Table(title, measure(steps, repeats, statistics.median), limits),
        Table(f"compiling, {title}", compiling, dict.fromkeys(quick, COMPILING)),
    ]


def outputs(x: jax.Array, sizes: tuple[int, ...], activation: Callable) -> jax.Array:
    """A fully connected network with standard normal priors on all weights."""
    for place, (inputs, units) in enumerate(itertools.pairwise(sizes)):
        x = activation(x) if place else x
        prior = dist.Normal(0.0, 1.0)
        weight = numpyro.sample(f"weight{place}", prior.expand([inputs, units]).to_event(2))
        bias = numpyro.sample(f"bias{place}", prior.expand([units]).to_event(1))
        x = x @ weight + bias
    return x


def regression(x: jax.Array, y: jax.Array) -> None:
    loc = outputs(x, SIZES, jax.nn.relu).squeeze(-1)
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(loc, 0.5), obs=y)


def two_heads(sizes: tuple[int, ...], activation: Callable, x: jax.Array, y: jax.Array) -> None:
    """Heteroscedastic regression: the network has a mean and a log variance."""
    out = outputs(x, sizes, activation)
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(out[..., 0], jnp.exp(0.5 * out[..., 1])), obs=y)


def classification(activation: Callable, x: jax.Array, y: jax.Array) -> None:
    logits = outputs(x, CLASSIFIER, activation)
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def regression_steps(model: Callable) -> dict[str, tuple[Step, float]]:
    keys = jax.random.split(jax.random.key(0))
    data = jax.random.normal(keys[0], (64, 13)), jax.random.normal(keys[1], (64,))
    step = partial(elbo_step, model=model, data=data)
    return {
        "TraceMeanField_ELBO + AutoNormal": step(TraceMeanField_ELBO(), AutoNormal),
        SAMPLED: step(Trace_ELBO(), AutoNormal),
        "TraceMeanField_ELBO + DVIGuide": step(TraceMeanField_ELBO(), DVIGuide),
        FULL: step(DeterministicELBO(covariance="full"), DVIGuide),
        DIAGONAL: step(DeterministicELBO(covariance="diagonal"), DVIGuide),
    }


def sampled_steps() -> dict[str, Step]:
    """NumPyro's own draws, and those by rows."""
    contenders = {
        SAMPLED: (Trace_ELBO(), AutoNormal),
        BY_DRAWS: (DeterministicELBO(propagation="sampled"), DVIGuide),
    }
    return {name: _regression_step(*pair) for name, pair in contenders.items()}


def dropout_steps() -> dict[str, Step]:
    """MC dropout by draws of its masks, and without."""
    energies = {
        PARTICLES[1]: DeterministicELBO(propagation="sampled"),  # what one particle amounts to
        PARTICLES[10]: BBAlphaELBO(0.5, num_particles=10, propagation="sampled"),
        ENERGY: BBAlphaELBO(0.5, covariance="diagonal"),
    }
    return {name: _regression_step(energy, MCDropoutGuide) for name, energy in energies.items()}


def _regression_step(elbo: Any, guide: Any) -> Step:
    keys = jax.random.split(jax.random.key(0))
    data = jax.random.normal(keys[0], (64, 13)), jax.random.normal(keys[1], (64,))
    return elbo_step(elbo, guide, model=regression, data=data)[0]


def classification_steps(activation: Callable) -> dict[str, tuple[Step, float]]:
    keys = jax.random.split(jax.random.key(0))
    data = jax.random.uniform(keys[0], (BATCH, 784)), jax.random.randint(keys[1], (BATCH,), 0, 10)
    step = partial(elbo_step, model=partial(classification, activation), data=data)
    return {
        "plain network": plain_step(activation, data),
        SAMPLED: step(Trace_ELBO(), AutoNormal),
        DIAGONAL: step(DeterministicELBO(covariance="diagonal"), DVIGuide),
        **limit_steps(),
    }


def limit_steps() -> dict[str, tuple[Step, float]]:
    keys = iter(jax.random.split(jax.random.key(1), 64))
    layers = operands(CLASSIFIER, BATCH, lambda *shape: jax.random.normal(next(keys), shape))
    return {PRODUCTS: timed(products, layers), PASS: timed(passed, layers)}


def elbo_step(elbo: Any, guide: Any, *, model: Callable, data: tuple) -> tuple[Step, float]:
    """One loss with its gradients, as an SVI step computes them, without the optimiser."""
    svi = SVI(model, guide(model, init_scale=0.05), Adam(1e-3), elbo)
    state = svi.init(jax.random.key(0), *data)

    def loss(parameters: dict, key: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        constrained = svi.constrain_fn(parameters)
        return svi.loss.loss(key, constrained, svi.model, svi.guide, x, y)

    return compiled(loss, svi.optim.get_params(state.optim_state), state.rng_key, *data)


def plain_step(activation: Callable, data: tuple) -> tuple[Step, float]:
    def loss(parameters: dict, x: jax.Array, y: jax.Array) -> jax.Array:
        weights = numpyro.handlers.substitute(outputs, parameters)
        with numpyro.handlers.block():
            logits = weights(x, CLASSIFIER, activation)
        log_probabilities = jax.nn.log_softmax(logits)
        return -jnp.sum(jnp.take_along_axis(log_probabilities, y[:, None], axis=-1))

    network = numpyro.handlers.seed(outputs, jax.random.key(1))
    trace = numpyro.handlers.trace(network).get_trace(data[0], CLASSIFIER, activation)
    scale = 0.05  # of a usual initialisation
    parameters = {name: scale * site["value"] for name, site in trace.items()}
    return compiled(loss, parameters, *data)


def compiled(loss: Callable, *arguments: Any) -> tuple[Step, float]:
    """The jitted loss with its gradients, and the seconds of its tracing and compiling."""
    return timed(jax.value_and_grad(loss), *arguments)


def timed(function: Callable, *arguments: Any) -> tuple[Step, float]:
    """A jitted function, and the seconds of its tracing and compiling."""
    step = jax.jit(function)
    start = time.perf_counter()
    jax.block_until_ready(step(*arguments))
    return lambda: jax.block_until_ready(step(*arguments)), time.perf_counter() - start
