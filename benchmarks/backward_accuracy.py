"""ELBO and moments of deep networks by three covariances, against 10⁵ draws of the weights.

    python benchmarks/backward_accuracy.py [--activations relu] [--layers 3 4 6] [--out FILE]

Networks 1-50-…-50-1 with standard normal priors are fitted to 100 points of a sine with noise, by
diagonal and by backward covariance from the same start, and by full covariance from where backward
ended. Each of them is then measured by all three: the ELBO and its difference from the one by
draws, the geometric mean of the output's standard deviations over the drawn ones, and the mean
error of its means over the mean standard deviation. NumPyro in double precision.
"""

import itertools
import json
import math
import warnings

import harness
import models
import moments
import numpy as np

from moment_calculus.errors import LossByDrawsWarning

ROWS, UNITS, NOISE, TOGETHER, RATE = 100, 50, 0.2, 250, 1e-2
COVARIANCES = ("diagonal", "backward", "full")


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--out",
        layers=([3, 4, 6], "hidden ones"),
        activations=(["relu", "tanh"], "of them"),
        steps=(8_000, "of diagonal and backward"),
        full_steps=(1_500, "of full, after backward"),
        draws=(100_000, "of the weights"),
    )
    options.host, file = "numpyro", options.out
    before = json.loads(file.read_text())["rows"] if file and file.is_file() else []

    def content(options, rows):
        return harness.by_machine(options, before + rows)

    harness.run(options, measured, content, lambda rows: [])


def measured(host, options):
    with host.doubles():
        x = np.linspace(-2, 2, ROWS)[:, None]
        y = np.sin(2 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=ROWS)
        data = host.array(x), host.array(y)
        for depth, activation in itertools.product(options.layers, options.activations):
            sizes, params = (1, *[UNITS] * depth, 1), None
            network = host.network(sizes, host.activation(activation))
            model = models.observed(host, network, "Normal", NOISE)
            for trained_by in COVARIANCES:
                steps = options.full_steps if trained_by == "full" else options.steps
                fit, warned = fitted(host, model, data, trained_by, steps, sizes, params)
                params = fit.params if trained_by == "backward" else None
                before, last = np.asarray(fit.losses)[[-500, -1]]
                row = {"network": "-".join(map(str, sizes)), "activation": activation}
                row |= {"trained_by": trained_by, "steps": steps}
                row |= {"last_change": float((last - before) / abs(last)), "warned": warned}
                yield row | beside_draws(host, network, model, fit, data, options.draws)


def fitted(host, model, data, covariance, steps, sizes, params):
    """A fit from He's initial weights and biases of zero, and whether its check by draws warned."""
    import optax

    generator, values = np.random.default_rng(0), {}
    for place, (inputs, units) in enumerate(itertools.pairwise(sizes)):
        drawn = generator.normal(0, (2 / inputs) ** 0.5, (inputs, units))
        values |= {f"weight{place}": host.array(drawn), f"bias{place}": host.np.zeros(units)}
    start = host.init_to_value(values=values)
    guide = host.package.DVIGuide(model, init_loc_fn=start, init_scale=math.exp(-4))
    options = {"learning_rate": optax.cosine_decay_schedule(RATE, steps), "progress_bar": False}
    options |= {"objective": host.package.DeterministicELBO(covariance=covariance)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = host.package.fit(model, guide, *data, steps=steps, params=params, **options)
    return fit, any(issubclass(one.category, LossByDrawsWarning) for one in caught)


def beside_draws(host, network, model, fit, data, draws):
    jax, package, likelihoods = host.jax, host.package, []
    outputs, parts = drawn(host, network, fit, data, draws, likelihoods), host.located(fit.params)
    mean, deviation = moments.of_draws(outputs)
    log_likelihood = np.concatenate(likelihoods)
    # of the guide from the standard normal prior
    divergence = sum(np.sum((m**2 + s**2 - 1) / 2 - np.log(s)) for m, s in parts.values())
    true = float(log_likelihood.mean() - divergence)
    row = {"elbo_by_draws": true, "standard_error": float(log_likelihood.std() / draws**0.5)}
    for covariance in COVARIANCES:
        objective = package.DeterministicELBO(covariance=covariance)
        loss = jax.jit(
            lambda params, by=objective: by.loss(jax.random.key(0), params, model, fit.guide, *data)
        )
        elbo = -float(loss(fit.params))
        output = package.predict(model, fit, data[0], covariance=covariance)["obs"]
        found, spread = np.asarray(output.mean), np.asarray(output.epistemic_variance) ** 0.5
        row[covariance] = {
            "elbo": elbo,
            "difference": (elbo - true) / abs(true),
            "sd": float(np.exp(np.mean(np.log(spread / deviation)))),
            "mean": float(np.abs(found - mean).mean() / deviation.mean()),
        }
    return row


def drawn(host, network, fit, data, draws, likelihoods):
    """Outputs, many draws at a time; the log-likelihood of each draw is noted."""
    (x, y), handlers, random = data, host.numpyro.handlers, host.jax.random

    def one(key):
        weights = fit.guide.sample_posterior(key, fit.params)
        return handlers.substitute(handlers.seed(network, 0), weights)(x)[..., 0]

    sample = host.over_draws(one)
    for keys in np.split(random.split(random.key(1), draws), draws // TOGETHER):
        outputs = np.asarray(sample(keys))
        terms = ((y - outputs) / NOISE) ** 2 / -2 - math.log(NOISE * math.sqrt(2 * math.pi))
        likelihoods.append(terms.sum(1))
        yield outputs


if __name__ == "__main__":
    main()
