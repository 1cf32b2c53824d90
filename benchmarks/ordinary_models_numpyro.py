"""Steps of ordinary models in NumPyro: the closed-form ELBO against NumPyro's sampled ELBO."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from step_time_numpyro import elbo_step
from timing import Table, measure

from numpyro_moments import DeterministicELBO, DVIGuide

COVARIATES, LARGE = 20, 1_000_000
SAMPLED, CLOSED = "TraceMeanField_ELBO + AutoNormal", "DeterministicELBO + DVIGuide"
FIRST_STEP = 0.9  # largest ratio of the times that tracing and compiling take

# outcome of a linear predictor f, with its largest ratio
OUTCOMES: dict[str, tuple[Callable[[jax.Array], Any], float]] = {
    "Bernoulli": (lambda f: dist.Bernoulli(logits=f), 1.5),
    "Poisson": (lambda f: dist.Poisson(jnp.exp(f)), 1.5),
    "NegativeBinomial": (lambda f: dist.NegativeBinomialLogits(5.0, f), 1.5),
    "StudentT": (lambda f: dist.StudentT(4.0, f, 0.5), 3.0),
    "Gamma": (lambda f: dist.Gamma(2.0, 2.0 * jnp.exp(-f)), 4.0),
    "OrderedLogistic": (lambda f: dist.OrderedLogistic(f, jnp.array([-1.0, 0.0, 1.0])), 4.0),
    "GammaPoisson": (lambda f: dist.GammaPoisson(3.0, 3.0 * jnp.exp(-f)), 4.0),
}


def tables(options: argparse.Namespace) -> Iterator[Table]:
    plan = [(name, options.rows, options.repeats) for name in OUTCOMES]
    plan.append(("Bernoulli", LARGE, max(3, options.repeats // 10)))
    for name, rows, repeats in plan:
        outcome, limit = OUTCOMES[name]
        title = f"{name}, {rows} x {COVARIATES}"
        if options.only in title:
            first_step = rows == options.rows and name == "Bernoulli"
            yield from both(title, *regression(outcome, rows), repeats, limit, first_step)
    for name, (model, data) in EXAMPLES.items():
        if options.only in name:
            yield from both(name, model, data(), 20 * options.repeats, 1.5, True)


def both(
    title: str, model: Callable, data: tuple, repeats: int, limit: float, first_step: bool
) -> Iterator[Table]:
    """Times of a step, and of the first one."""
    made = {
        SAMPLED: elbo_step(TraceMeanField_ELBO(), AutoNormal, model=model, data=data),
        CLOSED: elbo_step(DeterministicELBO(), DVIGuide, model=model, data=data),
    }
    steps = {name: step for name, (step, _) in made.items()}
    yield Table(title, measure(steps, repeats, statistics.median), {CLOSED: limit})
    seconds = {name: first for name, (_, first) in made.items()}
    limits = {CLOSED: FIRST_STEP} if first_step else {}
    yield Table(f"first step, {title}", seconds, limits)


def regression(outcome: Callable[[jax.Array], Any], rows: int) -> tuple[Callable, tuple]:
    def model(x: jax.Array, y: jax.Array | None = None) -> Any:
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.0))
        slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([COVARIATES]).to_event(1))
        with numpyro.plate("data", len(x)):
            return numpyro.sample("obs", outcome(intercept + x @ slopes), obs=y)

    x = jax.random.normal(jax.random.key(0), (rows, COVARIATES))
    return model, (x, numpyro.handlers.seed(model, jax.random.key(1))(x))


def network(x: jax.Array, y: jax.Array) -> None:
    """Two hidden layers of 5 units and tanh, the noise's precision Gamma distributed."""
    for place, (inputs, units) in enumerate([(3, 5), (5, 5), (5, 1)]):
        prior = dist.Normal(jnp.zeros((inputs, units)), jnp.ones((inputs, units)))
        weight = numpyro.sample(f"weight{place}", prior)
        x = (jnp.tanh(x) if place else x) @ weight
    scale = 1.0 / jnp.sqrt(numpyro.sample("precision", dist.Gamma(3.0, 1.0)))
    with numpyro.plate("data", len(y)):
        numpyro.sample("obs", dist.Normal(x, scale).to_event(1), obs=y)


def network_data() -> tuple:
    x = jnp.linspace(-1, 1, 50)
    return jnp.power(x[:, None], jnp.arange(3)), jnp.sin(3 * x)[:, None]


def proportions(total: jax.Array, y: jax.Array) -> None:
    """A probability with a uniform prior for each binomial count."""
    with numpyro.plate("groups", len(total)):
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
        numpyro.sample("obs", dist.Binomial(total, p), obs=y)


def proportions_data() -> tuple:
    return jnp.full(20, 50), jnp.arange(15, 35)


def horseshoe(x: jax.Array, y: jax.Array) -> None:
    """Linear regression with a horseshoe prior, its noise's precision Gamma distributed."""
    covariates = x.shape[1]
    local = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(covariates)))
    overall = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    slopes = numpyro.sample("unscaled", dist.Normal(0.0, jnp.ones(covariates)))
    scale = 1.0 / jnp.sqrt(numpyro.sample("precision", dist.Gamma(3.0, 1.0)))
    with numpyro.plate("data", len(y)):
        numpyro.sample("obs", dist.Normal(x @ (overall * local * slopes), scale), obs=y)


def horseshoe_data() -> tuple:
    x = jax.random.normal(jax.random.key(0), (100, 20))
    return x, x[:, 0] - 2 * x[:, 1]


EXAMPLES = {
    "network 3-5-5-1, 50 rows": (network, network_data),
    "Uniform x Binomial, 20 groups": (proportions, proportions_data),
    "horseshoe, 100 x 20": (horseshoe, horseshoe_data),
}
