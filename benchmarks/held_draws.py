"""Compare fits with held draws with NUTS, on models that have terms without a moment rule.

python benchmarks/held_draws.py [NAMES …] writes docs/experiments/held_draws.json, a model at a
time: of every unconstrained coordinate the difference of means in standard deviations of NUTS and
the ratio of standard deviations, and seconds of the processor of both; and by how much means move
with other sets of draws, beside the error that the fit states.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logsumexp
from numpyro.distributions import biject_to
from numpyro.infer import MCMC, NUTS

from numpyro_moments import GaussianGuide, fit, linear_response

OUT = Path(__file__).parents[1] / "docs" / "experiments" / "held_draws.json"
OPTIONS: dict[str, Any] = {"method": "newton", "by_draws": False, "progress_bar": False}
FIRST_SET, SETS = 11, 4  # of other draws
sample = numpyro.sample
Case = tuple[Callable[..., None], tuple[np.ndarray, ...]]


def inflated_counts() -> Case:
    """Negative binomial counts, with zeros of another origin."""
    random = np.random.default_rng(1)
    x = random.normal(size=120)
    rate = random.gamma(3.0, np.exp(0.8 + 0.5 * x) / 3.0)
    y = np.where(random.uniform(size=120) < 0.3, 0, random.poisson(rate))

    def model(x: Any, y: Any) -> None:
        share = sample("share", dist.Beta(2.0, 2.0))
        a, b = (sample(name, dist.Normal(0.0, 1.5)) for name in "ab")
        size = sample("size", dist.LogNormal(1.0, 1.0))
        counts = dist.NegativeBinomial2(jnp.exp(a + b * x), size).log_prob(y)
        either = jnp.logaddexp(jnp.log1p(-share) + counts, jnp.log(share * (y == 0) + 1e-300))
        numpyro.factor("y", either.sum())

    return model, (x, y)


def outliers() -> Case:
    """A line with a share of rows that are off it by much."""
    random = np.random.default_rng(2)
    x = random.normal(size=80)
    y = 0.5 + 1.2 * x + np.where(random.uniform(size=80) < 0.15, 5.0, 0.5) * random.normal(size=80)

    def model(x: Any, y: Any) -> None:
        share = sample("share", dist.Beta(2.0, 8.0))
        a, b = (sample(name, dist.Normal(0.0, 2.0)) for name in "ab")
        scale = sample("scale", dist.HalfNormal(1.0))
        near = jnp.log1p(-share) + dist.Normal(a + b * x, scale).log_prob(y)
        far = jnp.log(share) + dist.Normal(a + b * x, 10 * scale).log_prob(y)
        numpyro.factor("y", jnp.logaddexp(near, far).sum())

    return model, (x, y)


def beta_binomial() -> Case:
    """Groups of successes, whose probabilities have a mean by logits and a concentration."""
    random = np.random.default_rng(3)
    x = random.normal(size=40)
    mean = 1 / (1 + np.exp(0.5 - 0.8 * x))
    y = random.binomial(20, random.beta(8 * mean, 8 * (1 - mean)))

    def model(x: Any, y: Any) -> None:
        a, b = (sample(name, dist.Normal(0.0, 1.5)) for name in "ab")
        size = sample("size", dist.LogNormal(2.0, 1.0))
        mean = jax.nn.sigmoid(a + b * x)
        terms = dist.BetaBinomial(mean * size, (1 - mean) * size, 20).log_prob(y)
        numpyro.factor("y", terms.sum())

    return model, (x, y)


def occupancy() -> Case:
    """Places that are inhabited or not, visited five times."""
    random = np.random.default_rng(4)
    x = random.normal(size=100)
    inhabited = random.uniform(size=100) < 1 / (1 + np.exp(-0.3 - x))
    y = random.binomial(5, 0.4 * inhabited)

    def model(x: Any, y: Any) -> None:
        a, b = (sample(name, dist.Normal(0.0, 1.5)) for name in "ab")
        seen = sample("seen", dist.Beta(1.0, 1.0))
        there = jax.nn.log_sigmoid(a + b * x) + dist.Binomial(5, seen).log_prob(y)
        empty = jnp.where(y == 0, jax.nn.log_sigmoid(-a - b * x), -jnp.inf)
        numpyro.factor("y", jnp.logaddexp(there, empty).sum())

    return model, (x, y)


def ordered_mixture() -> Case:
    """Two Gaussians with ordered means."""
    random = np.random.default_rng(5)
    y = np.where(random.uniform(size=150) < 0.4, -1.5, 1.5) + 0.8 * random.normal(size=150)

    def model(y: Any) -> None:
        share = sample("share", dist.Beta(2.0, 2.0))
        low, gap = sample("low", dist.Normal(0.0, 2.0)), sample("gap", dist.HalfNormal(3.0))
        scale = sample("scale", dist.HalfNormal(1.0))
        parts = [
            jnp.log(share) + dist.Normal(low, scale).log_prob(y),
            jnp.log1p(-share) + dist.Normal(low + gap, scale).log_prob(y),
        ]
        numpyro.factor("y", logsumexp(jnp.stack(parts), 0).sum())

    return model, (y,)


def dirichlet_multinomial() -> Case:
    """Counts of four kinds, more scattered than of a multinomial."""
    random = np.random.default_rng(6)
    shares = random.dirichlet(6 * np.array([0.4, 0.3, 0.2, 0.1]), size=40)
    y = np.stack([random.multinomial(25, each) for each in shares])

    def model(y: Any) -> None:
        logits = sample("logits", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        size = sample("size", dist.LogNormal(1.5, 1.0))
        by_kind = size * jax.nn.softmax(jnp.append(logits, 0.0))
        terms = (gammaln(y + by_kind) - gammaln(by_kind)).sum(-1)
        numpyro.factor("y", (terms + gammaln(size) - gammaln(y.sum(-1) + size)).sum())

    return model, (y,)


def epidemic() -> Case:
    """Daily cases of a susceptible–infected–recovered model, by Euler steps."""

    def curve(rate: Any, recovery: Any, first: Any) -> Any:
        susceptible, infected, cases = 1.0 - first, first, []
        for _ in range(30):
            new = rate * susceptible * infected
            susceptible, infected = susceptible - new, infected + new - recovery * infected
            cases.append(new)
        return jnp.stack(cases)

    y = np.random.default_rng(7).poisson(2000 * np.asarray(curve(0.6, 0.2, 0.005)))

    def model(y: Any) -> None:
        rate, recovery = (sample(name, dist.LogNormal(-1.0, 0.5)) for name in ("rate", "recovery"))
        first = sample("first", dist.LogNormal(-5.0, 0.5))
        terms = dist.Poisson(2000 * curve(rate, recovery, first)).log_prob(y)
        numpyro.factor("y", terms.sum())

    return model, (y,)


def random_kernel() -> Case:
    """A Gaussian process whose kernel is random."""
    random = np.random.default_rng(8)
    t = np.linspace(0.0, 1.0, 30)
    y = np.sin(6 * t) + 0.2 * random.normal(size=30)

    def model(t: Any, y: Any) -> None:
        length, noise = (sample(name, dist.LogNormal(-1.0, 0.5)) for name in ("length", "noise"))
        height = sample("height", dist.LogNormal(0.0, 0.5))
        kernel = height**2 * jnp.exp(-(((t[:, None] - t) / length) ** 2) / 2)
        kernel = kernel + noise**2 * jnp.eye(len(t))
        sample("y", dist.MultivariateNormal(jnp.zeros(len(t)), kernel), obs=y)

    return model, (t, y)


def hurdle() -> Case:
    """Amounts that are zero or Gamma; the probability is by a complementary log–log."""
    random = np.random.default_rng(9)
    x = random.normal(size=100)
    positive = random.uniform(size=100) < 1 - np.exp(-np.exp(-0.3 + 0.6 * x))
    y = positive * random.gamma(2.0, np.exp(0.5 + 0.3 * x) / 2.0)

    def model(x: Any, y: Any) -> None:
        a, b, c, d = (sample(name, dist.Normal(0.0, 1.5)) for name in "abcd")
        shape = sample("shape", dist.LogNormal(0.5, 0.5))
        rate = jnp.exp(a + b * x)
        amount = jnp.where(y > 0, y, 1.0)
        given = dist.Gamma(shape, shape * jnp.exp(-c - d * x)).log_prob(amount)
        terms = jnp.where(y > 0, jnp.log(-jnp.expm1(-rate)) + given, -rate)
        numpyro.factor("y", terms.sum())

    return model, (x, y)


def tobit() -> Case:
    """A line that is cut off at zero."""
    random = np.random.default_rng(10)
    x = random.normal(size=60)
    y = np.maximum(0.2 + 1.1 * x + 0.8 * random.normal(size=60), 0.0)

    def model(x: Any, y: Any) -> None:
        a, b = (sample(name, dist.Normal(0.0, 2.0)) for name in "ab")
        scale = sample("scale", dist.HalfNormal(2.0))
        z = (a + b * x) / scale
        seen = dist.Normal(a + b * x, scale).log_prob(y)
        numpyro.factor("y", jnp.where(y > 0, seen, jax.scipy.special.log_ndtr(-z)).sum())

    return model, (x, y)


CASES = [tobit, outliers, inflated_counts, beta_binomial, occupancy, ordered_mixture]
CASES += [dirichlet_multinomial, epidemic, random_kernel, hurdle]


def by_nuts(model: Callable, data: tuple, sites: dict[str, Any]) -> tuple[Any, Any, float]:
    """Return means and standard deviations on the unconstrained space by site, and seconds."""
    started = time.process_time()
    chains = MCMC(
        NUTS(model),
        num_warmup=500,
        num_samples=1000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(0), *data)
    seconds = time.process_time() - started
    draws = {
        name: biject_to(sites[name].support).inv(values)
        for name, values in chains.get_samples().items()
    }
    means = {name: np.ravel(each.mean(0)) for name, each in draws.items()}
    return means, {name: np.ravel(each.std(0)) for name, each in draws.items()}, seconds


def compared(case: Callable[[], Case]) -> dict[str, Any]:
    """Return a row of the table."""
    model, data = case()
    started = time.process_time()
    trained = fit(model, GaussianGuide(), *data, unsupported="held draws", **OPTIONS)
    response = linear_response(model, trained, *data)
    sites = [*response.sites]
    found = {name: (response.location(name), response.standard_deviation(name)) for name in sites}
    seconds = time.process_time() - started
    traced = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(*data)
    supports = {name: traced[name]["fn"] for name in sites}
    means, deviations, chains = by_nuts(model, data, supports)
    off, ratio = [], []
    for name in sites:
        mean, sd = (np.ravel(np.asarray(part)) for part in found[name])
        off += ((mean - means[name]) / deviations[name]).tolist()
        ratio += (sd / deviations[name]).tolist()
    held = trained.held
    return {
        "sites": [] if held is None else [*held.sites],
        "draws": 0 if held is None else held.number,
        "error": 0.0 if held is None else held.error,
        "moved": [] if held is None else moved(model, data, trained, supports),
        "means off by": off,
        "ratio of deviations": ratio,
        "seconds": seconds,
        "seconds of NUTS": chains,
    }


def moved(model: Callable, data: tuple, trained: Any, sites: dict[str, Any]) -> list[float]:
    """Return the largest move of a mean by each other set, in deviations of the guide."""
    low, mean, high = (
        unconstrained(trained, sites, share) for share in (0.1586553, 0.5, 0.8413447)
    )
    moves = []
    for which in range(FIRST_SET, FIRST_SET + SETS):  # beyond those by which the error is found
        objective = trained.objective.with_held(held_set=which)
        start = {"start": trained, "objective": objective}
        other = fit(model, GaussianGuide(), *data, **start, **OPTIONS)
        steps = (unconstrained(other, sites, 0.5) - mean) / ((high - low) / 2)
        moves.append(float(np.abs(steps).max()))
    return moves


def unconstrained(trained: Any, sites: dict[str, Any], share: float) -> np.ndarray:
    """Return quantiles of all coordinates."""
    quantiles = trained.guide.quantiles(trained.params, share)
    parts = [biject_to(fn.support).inv(quantiles[name]) for name, fn in sites.items()]
    return np.concatenate([np.ravel(part) for part in parts])


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for case in CASES:
        if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
            row = compared(case)
            rows = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
            rows[case.__name__] = row
            rows = {case.__name__: rows[case.__name__] for case in CASES if case.__name__ in rows}
            OUT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            text = {key: np.round(part, 4) for key, part in row.items() if key != "sites"}
            print(case.__name__, text, flush=True)
