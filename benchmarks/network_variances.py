"""Predictive standard deviations of a network by linear response, beside those of NUTS and guides.

    python benchmarks/network_variances.py NAME.npz [--hidden 50] [--draws 1000]

The file holds X [N, D] and y [N]. A network of ReLUs with one hidden layer in NumPyro, in double
precision; a tenth of the rows is predicted. Of each row the standard deviation of the network's
output is divided by that of NUTS' draws.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

from numpyro_moments import DVIGuide, fit, linear_response, predict

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def network(hidden: int) -> Callable:
    def layer(name: str, x: Any, outputs: int) -> Any:
        prior = dist.Normal(0.0, 1.0)
        weight = numpyro.sample(f"{name}.weight", prior.expand([x.shape[-1], outputs]).to_event(2))
        return x @ weight + numpyro.sample(f"{name}.bias", prior.expand([outputs]).to_event(1))

    def model(x: Any, y: Any = None) -> None:
        out = layer("last", jax.nn.relu(layer("first", x, hidden)), 1)[..., 0]
        numpyro.deterministic("output", out)
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("data", len(x)):
            numpyro.sample("obs", dist.Normal(out, scale), obs=y)

    return model


def split(path: Path) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Standardised covariates and outcomes to train on, and covariates to predict."""
    with np.load(path) as arrays:
        x, y = (np.asarray(arrays[name], float) for name in ("X", "y"))
    x, y = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9), (y.ravel() - y.mean()) / y.std()
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(rows, [int(0.9 * len(y))])
    return jnp.asarray(x[train]), jnp.asarray(y[train]), jnp.asarray(x[test])


@contextmanager
def timed(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def by_moments(model: Callable, x: jax.Array, y: jax.Array, new: jax.Array) -> dict[str, Any]:
    """Standard deviations by mean field, and by linear response about it."""
    with timed("fit"):
        begun = fit(model, DVIGuide(), x, y, method="lbfgs", float64=True)
        found = fit(
            model, begun.guide, x, y, method="newton", params=begun.params, float64=True, steps=600
        )
    print(found.reason)
    with timed("linear response"):
        response = linear_response(model, found.guide, x, y, params=found.params)
        corrected = response.predict(new)["obs"]
    plain = predict(model, found.guide, found.params, new)["obs"]
    print(f"noise by mean field {float(jnp.exp(response.location('scale'))):.3f}")
    variances = {"mean field": plain, "linear response": corrected}
    return {name: jnp.sqrt(part.epistemic_variance) for name, part in variances.items()}


def by_draws(
    model: Callable, x: jax.Array, y: jax.Array, new: jax.Array, draws: int, steps: int
) -> dict[str, Any]:
    """Standard deviations of the outputs by NUTS, and by a full-rank guide with sampled ELBO."""
    with timed("NUTS"):
        sampler = MCMC(NUTS(model), num_warmup=draws, num_samples=draws, progress_bar=False)
        sampler.run(jax.random.key(1), x, y)
    samples = sampler.get_samples()
    print(f"noise by NUTS {float(samples['scale'].mean()):.3f}")
    with timed("full-rank guide"):
        guide = AutoMultivariateNormal(model)
        rate = optax.exponential_decay(1e-2, steps, 1e-2)
        svi = SVI(model, guide, optax.adam(rate), Trace_ELBO())
        trained = svi.run(jax.random.key(2), steps, x, y, progress_bar=False)
    full = guide.sample_posterior(jax.random.key(3), trained.params, sample_shape=(draws,))
    return {"NUTS": _outputs(model, samples, new), "full rank": _outputs(model, full, new)}


def _outputs(model: Callable, samples: dict[str, Any], new: jax.Array) -> jax.Array:
    return Predictive(model, samples)(jax.random.key(4), new)["output"].std(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--hidden", type=int, default=50)
    parser.add_argument("--draws", type=int, default=1000, help="of NUTS, and of its warm-up")
    parser.add_argument("--steps", type=int, default=10000, help="of the full-rank guide")
    options = parser.parse_args()
    with jax.enable_x64(True):
        data, model = split(options.file), network(options.hidden)
        found = by_moments(model, *data)
        found |= by_draws(model, *data, options.draws, options.steps)
        reference = found.pop("NUTS")
        print(f"{'sd / NUTS, quantiles':22s} " + " ".join(f"{level:6.0%}" for level in LEVELS))
        for name, deviations in found.items():
            ratios = np.quantile(np.asarray(deviations / reference), LEVELS)
            print(f"{name:22s} " + " ".join(f"{ratio:6.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
