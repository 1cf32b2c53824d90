"""Predictive standard deviations of a network by linear response, beside those of NUTS and guides.

    python benchmarks/network_variances.py NAME.npz [--hidden 50] [--draws 1000]

The file holds X [N, D] and y [N]. A network of ReLUs with one hidden layer in NumPyro, in double
precision; a tenth of the rows is predicted. Of each row the standard deviation of the network's
output is divided by that of NUTS' draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import host_numpyro as host
import hosts
import jax
import jax.numpy as jnp
import numpy as np
import optax
from models import one_hidden_layer, regression_by
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

from numpyro_moments import linear_response, predict

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def network(hidden: int) -> Callable:
    def output(x: Any) -> Any:
        return host.deterministic("output", one_hidden_layer(host, x, hidden))

    return regression_by(host, output)


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
        fit = hosts.newton_after_lbfgs(host, model, x, y)
    print(fit.reason)
    with timed("linear response"):
        response = linear_response(model, fit.guide, x, y, params=fit.params)
        corrected = response.predict(new)["obs"]
    plain = predict(model, fit.guide, fit.params, new)["obs"]
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
    parser = hosts.parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--hidden", type=int, default=50)
    parser.add_argument("--draws", type=int, default=1000, help="of NUTS, and of its warm-up")
    parser.add_argument("--steps", type=int, default=10000, help="of the full-rank guide")
    options = parser.parse_args()
    with jax.enable_x64(True):
        data, model = split(options.file), network(options.hidden)
        by_method = by_moments(model, *data)
        by_method |= by_draws(model, *data, options.draws, options.steps)
        reference = by_method.pop("NUTS")
        print(f"{'sd / NUTS, quantiles':22s} " + " ".join(f"{level:6.0%}" for level in LEVELS))
        for name, deviations in by_method.items():
            ratios = np.quantile(np.asarray(deviations / reference), LEVELS)
            print(f"{name:22s} " + " ".join(f"{ratio:6.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
