"""ELBO and moments of deep networks by three covariances, against 10⁵ draws of the weights.

    python benchmarks/backward_accuracy.py [--only relu] [--layers 3 4 6] [--out FILE]

Networks 1-50-…-50-1 with standard normal priors are fitted to 100 points of a sine with noise, by
diagonal and by backward covariance from the same start, and by full covariance from where backward
ended. Each of them is then measured by all three: the ELBO and its difference from the one by
draws, the geometric mean of the output's standard deviations over the drawn ones, and the mean
error of its means over the mean standard deviation. NumPyro in double precision.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hosts
import models
import numpy as np

from moment_calculus.errors import LossByDrawsWarning

ROWS, UNITS, NOISE = 100, 50, 0.2
DRAWS, TOGETHER, RATE = 100_000, 250, 1e-2
COVARIANCES = ("diagonal", "backward", "full")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host = hosts.load("numpyro", 1)
    file = options.out
    rows = json.loads(file.read_text())["rows"] if file and file.is_file() else []
    with host.doubles():
        for depth, activation in itertools.product(options.layers, options.activations):
            for row in measured(host, depth, activation, options):
                rows.append(row)
                print(json.dumps(row), flush=True)
                hosts.write(file, {"machine": hosts.described("numpyro"), "rows": rows})


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--out")
    parser.add_argument("--layers", nargs="*", type=int, default=[3, 4, 6])
    parser.add_argument("--activations", nargs="*", default=["relu", "tanh"])
    parser.add_argument("--steps", type=int, default=8_000, help="of diagonal and backward")
    parser.add_argument("--full-steps", type=int, default=1_500, help="of full, after backward")
    parser.add_argument("--draws", type=int, default=DRAWS)
    return parser.parse_args(arguments)


def measured(
    host: Any, depth: int, activation: str, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    sizes = (1, *[UNITS] * depth, 1)
    network = host.network(sizes, host.activation(activation))
    model = models.observed(host, network, lambda f: host.dist.Normal(f[..., 0], NOISE))
    data = points(host)
    start, params = beginning(host, sizes), None
    for trained_by in COVARIANCES:
        steps = options.full_steps if trained_by == "full" else options.steps
        fit, warned = fitted(host, model, data, trained_by, steps, start, params)
        params = fit.params if trained_by == "backward" else None
        name = {"network": "-".join(map(str, sizes)), "activation": activation}
        ending = {"steps": steps, "last_change": change(fit), "warned": warned}
        yield (
            name
            | {"trained_by": trained_by}
            | ending
            | beside_draws(host, network, model, fit, data, options.draws)
        )


def points(host: Any) -> tuple[Any, Any]:
    x = np.linspace(-2, 2, ROWS)[:, None]
    noise = np.random.default_rng(0).normal(size=ROWS)
    return host.array(x), host.array(np.sin(2 * x[:, 0]) + 0.1 * noise)


def beginning(host: Any, sizes: tuple[int, ...]) -> dict[str, Any]:
    """He's initial weights, and biases of zero."""
    generator, values = np.random.default_rng(0), {}
    for place, (inputs, units) in enumerate(itertools.pairwise(sizes)):
        values[f"weight{place}"] = generator.normal(0, (2 / inputs) ** 0.5, (inputs, units))
        values[f"bias{place}"] = np.zeros(units)
    return {name: host.array(value) for name, value in values.items()}


def fitted(
    host: Any,
    model: Callable,
    data: tuple,
    covariance: str,
    steps: int,
    start: dict,
    params: dict | None,
) -> tuple[Any, bool]:
    """A fit, and whether its check by draws warned."""
    import optax

    values = host.init_to_value(values=start)
    guide = host.package.DVIGuide(model, init_loc_fn=values, init_scale=math.exp(-4))
    rate = optax.cosine_decay_schedule(RATE, steps)
    elbo = host.package.DeterministicELBO(covariance=covariance)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = host.package.fit(
            model,
            guide,
            *data,
            objective=elbo,
            steps=steps,
            learning_rate=rate,
            params=params,
            progress_bar=False,
        )
    return fit, any(issubclass(one.category, LossByDrawsWarning) for one in caught)


def change(fit: Any) -> float:
    """Relative change of the loss over the last 500 steps."""
    before, last = np.asarray(fit.losses)[[-500, -1]]
    return float((last - before) / abs(last))


def beside_draws(
    host: Any, network: Callable, model: Callable, fit: Any, data: tuple, draws: int
) -> dict[str, Any]:
    mean, deviation, log_likelihood, error = drawn(host, network, fit, data, draws)
    true = log_likelihood - divergence(host, fit)
    row = {"elbo_by_draws": true, "standard_error": error}
    for covariance in COVARIANCES:
        elbo = stated(host, model, fit, data, covariance)
        output = host.package.predict(model, fit, data[0], covariance=covariance)["obs"]
        found, spread = np.asarray(output.mean), np.asarray(output.epistemic_variance) ** 0.5
        row[covariance] = {
            "elbo": elbo,
            "difference": (elbo - true) / abs(true),
            "sd": float(np.exp(np.mean(np.log(spread / deviation)))),
            "mean": float(np.abs(found - mean).mean() / deviation.mean()),
        }
    return row


def stated(host: Any, model: Callable, fit: Any, data: tuple, covariance: str) -> float:
    """The ELBO in closed form."""
    import jax

    elbo = host.package.DeterministicELBO(covariance=covariance)
    loss = jax.jit(lambda params: elbo.loss(jax.random.key(0), params, model, fit.guide, *data))
    return -float(loss(fit.params))


def divergence(host: Any, fit: Any) -> float:
    """KL of the guide from the standard normal prior."""
    parts = host.located(fit.params).values()
    return float(sum(np.sum((mean**2 + scale**2 - 1) / 2 - np.log(scale)) for mean, scale in parts))


def drawn(host: Any, network: Callable, fit: Any, data: tuple, draws: int) -> tuple[Any, ...]:
    """Mean and standard deviation of the outputs, mean log-likelihood and its standard error."""
    import jax
    import numpyro

    x, y = data

    def one(key: Any) -> Any:
        weights = fit.guide.sample_posterior(key, fit.params)
        return numpyro.handlers.substitute(numpyro.handlers.seed(network, 0), weights)(x)[..., 0]

    sample = jax.jit(jax.vmap(one))
    total, squares, likelihoods = np.zeros(ROWS), np.zeros(ROWS), []
    for keys in np.split(jax.random.split(jax.random.key(1), draws), draws // TOGETHER):
        outputs = np.asarray(sample(keys))
        total, squares = total + outputs.sum(0), squares + (outputs**2).sum(0)
        terms = ((y - outputs) / NOISE) ** 2 / -2 - math.log(NOISE * math.sqrt(2 * math.pi))
        likelihoods.append(terms.sum(1))
    log_likelihood, mean = np.concatenate(likelihoods), total / draws
    deviation = np.sqrt(squares / draws - mean**2)
    error = log_likelihood.std() / draws**0.5
    return mean, deviation, float(log_likelihood.mean()), float(error)


if __name__ == "__main__":
    main()
