"""The demo in NumPyro: a network, trained in closed form and by sampling, and under NUTS."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from regression import Clock, Run, Split

from numpyro_moments import (
    Comparison,
    DeterministicELBO,
    DVIGuide,
    EmpiricalBayesNormal,
    Fit,
    compare_with_nuts,
    fit,
    predict,
)


def network(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
    """An ordinary NumPyro model: 50 ReLUs, two outputs, the log variance of the noise being one."""
    out = layer("output", jax.nn.relu(layer("hidden", x, 50)), 2)
    with numpyro.plate("data", len(x)):
        noise = dist.Normal(out[..., 0], jnp.exp(0.5 * out[..., 1]))
        return numpyro.sample("obs", noise, obs=y)


def layer(name: str, x: jax.Array, outputs: int) -> jax.Array:
    weight = numpyro.sample(f"{name}.weight", EmpiricalBayesNormal([outputs, x.shape[-1]]))
    bias = numpyro.sample(f"{name}.bias", EmpiricalBayesNormal([outputs]))
    return x @ weight.T + bias


def runs(split: Split, options: Namespace) -> Iterator[Run]:
    """The same model and guide, trained for the same time by either ELBO."""
    for label, elbo in (("DVI", DeterministicELBO()), ("MCVI", TraceMeanField_ELBO())):
        yield train(label, elbo, split, Clock(options.seconds))


def train(label: str, elbo: ELBO, split: Split, clock: Clock) -> Run:
    data = split.x_train, split.y_train
    trained = fit(network, DVIGuide(), *data, objective=elbo, callback=clock, **Clock.UNTIL)
    prediction = predict(network, trained.guide, trained.params, split.x_test)["obs"]
    return clock.run(label, prediction, prediction.log_prob(split.y_test))


def small_network(x: jax.Array, y: jax.Array | None = None) -> None:
    """20 ReLUs with standard normal priors, and noise of one unknown scale."""
    hidden = jax.nn.relu(plain_layer("hidden", x, 20))
    out = plain_layer("output", hidden, 1)[..., 0]
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(out, scale), obs=y)


def plain_layer(name: str, x: jax.Array, outputs: int) -> jax.Array:
    prior = dist.Normal(0.0, 1.0)
    weight = numpyro.sample(f"{name}.weight", prior.expand([x.shape[-1], outputs]).to_event(2))
    return x @ weight + numpyro.sample(f"{name}.bias", prior.expand([outputs]).to_event(1))


def comparisons(split: Split, options: Namespace) -> Iterator[tuple[str, Comparison]]:
    """A network by moments, corrected by linear response, and by sampling, beside NUTS."""
    with jax.enable_x64(True):
        x, y, new = map(jnp.asarray, (split.x_train, split.y_train, split.x_test))
    chains = {"num_warmup": options.nuts, "num_samples": options.nuts, "num_chains": 2}
    chains |= {"kernel": {"max_tree_depth": 8}, "test": (new,)}
    ours = compare_with_nuts(small_network, at_optimum(x, y), x, y, **chains)
    yield "network 10-20-1 in NumPyro: DVI", ours
    sampled = {
        "objective": TraceMeanField_ELBO(),
        "callback": Clock(options.seconds),
        **Clock.UNTIL,
    }
    found = fit(small_network, DVIGuide(), x, y, float64=True, **sampled)
    theirs = {"test": (new,), "reference": ours.reference}
    yield (
        "the same by Monte Carlo VI",
        compare_with_nuts(small_network, found, x, y, **theirs),
    )


def at_optimum(x: jax.Array, y: jax.Array) -> Fit:
    """By L-BFGS, then by Newton's method, which ends where linear response begins."""
    begun = fit(small_network, DVIGuide(), x, y, method="lbfgs", float64=True)
    options = {"params": begun.params, "float64": True, "steps": 600}
    found = fit(small_network, begun.guide, x, y, method="newton", **options)
    found.seconds["before"] = sum(begun.seconds.values())
    return found
