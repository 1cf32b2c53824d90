"""Twelve models: the ELBO in closed form against the host's Trace_ELBO.

    OMP_NUM_THREADS=1 python benchmarks/model_accuracy.py --check
    OMP_NUM_THREADS=1 python benchmarks/model_accuracy.py --host numpyro --check

Twelve models of different kinds, as users of both hosts would write them, are trained with the
deterministic ELBO; then both ELBOs are evaluated with the same guide, Trace_ELBO as the mean over
many draws. Agreement means: within three standard errors of that mean plus one per cent of it.
"""

import math
from dataclasses import asdict, dataclass
from functools import partial

import harness
import numpy as np
from models import linear, observed, perceptron, scaled

SHARE, STANDARD_ERRORS = 0.01, 3.0
HIDDEN, INPUTS, POINTS, GROUPS = 10, 3, 60, 20


@dataclass(frozen=True)
class Row:
    """One model: ELBO in closed form, mean of the sampled one, and its standard error."""

    name: str
    elbo: float
    sampled: float
    standard_error: float

    @property
    def allowed(self) -> float:
        return STANDARD_ERRORS * self.standard_error + SHARE * abs(self.sampled)

    @property
    def agrees(self) -> bool:
        return abs(self.elbo - self.sampled) <= self.allowed

    def __str__(self) -> str:
        sampled = f"{self.sampled:.2f} ± {self.standard_error:.2f}"
        difference = f"{self.elbo - self.sampled:+.2f} | {self.allowed:.2f}"
        return f"| {self.name} | {self.elbo:.2f} | {sampled} | {difference} |"


def main(arguments=None):
    own = {"samples": (10_000, "of the ELBO"), "steps": (200, "of training")}
    options = harness.parse(__doc__, arguments, "--host --check --out", **own)

    def rows(host, options):
        for name, (model, data) in models(options.host).items():
            yield compare(host, name, model, data, samples=options.samples, steps=options.steps)

    def content(options, rows):
        found = {row.pop("name"): row for row in map(asdict, rows)}
        return {options.host: found}

    print("| model | ELBO | Trace_ELBO | difference | allowed |\n|---|---|---|---|---|")
    harness.run(options, rows, content, lambda rows: [str(row) for row in rows if not row.agrees])


def compare(host, name, model, data, *, samples, steps):
    loss, draws = host.losses(model, data, samples, steps)
    return Row(name, -loss, -float(draws.mean()), float(draws.std()) / math.sqrt(samples))


def layer(host, name, x, units):
    """A linear map with random weights."""
    weight = host.sample(f"{name}.weight", scaled(host)([x.shape[-1], units]))
    return x @ weight + host.sample(f"{name}.bias", scaled(host)([units]))


def residual(host, x):
    """Two residual blocks between linear maps."""
    h = layer(host, "first", x, HIDDEN)
    for name in ("block0", "block1"):
        h = h + host.relu(layer(host, name, h, HIDDEN))
    return layer(host, "last", h, 1)


def normalised(host, x):
    """A hidden layer whose units are standardised, and GELU."""
    h = host.standardise(layer(host, "first", x, HIDDEN))
    return layer(host, "last", host.gelu(h), 1)


def two_sites(host, x, y, labels):
    """One hidden layer, two observed sites: a real one and a binary one."""
    h = host.np.tanh(layer(host, "hidden", x, HIDDEN))
    real, binary = (layer(host, name, h, 1)[..., 0] for name in ("real", "binary"))
    with host.plate("data", len(x)):
        host.sample("obs", host.dist.Normal(real, 0.4), obs=y)
        host.sample("labels", host.dist.Bernoulli(logits=binary), obs=labels)


def hierarchical(host, group, y):
    """Twenty groups around a common mean, with a common spread."""
    mu = host.sample("mu", host.dist.Normal(0.0, 2.0))
    tau = host.sample("tau", host.dist.LogNormal(-0.5, 0.5))
    with host.plate("groups", GROUPS):
        theta = host.sample("theta", host.dist.Normal(mu, tau))
    with host.plate("data", len(y)):
        host.sample("obs", host.dist.Normal(theta[group], 0.5), obs=y)


def local_latents(host, x, y):
    """Noisy inputs: every observation has a latent true input of its own."""
    slope = host.sample("slope", host.dist.Normal(0.0, 1.0))
    with host.plate("data", len(x)):
        z = host.sample("z", host.dist.Normal(x[:, 0], 0.3))
        host.sample("obs", host.dist.Normal(slope * z, 0.5), obs=y)


def arrays(host):
    """Inputs, groups, and outcomes."""

    def noise(seed, *shape):
        return np.asarray(host.normal(seed, *shape))

    x, y_noise, group = noise(0, POINTS, INPUTS), noise(1, POINTS), np.arange(POINTS) % GROUPS
    trend = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]
    y = trend + 0.3 * y_noise
    grades = np.searchsorted([-0.5, 0.3, 1.0], y)
    found = {
        "x": x,
        "y": y,
        "heavy": trend + 0.3 * y_noise * np.exp(np.maximum(noise(2, POINTS), 0)),
        "binary": (y > 0).astype(y.dtype),
        "grades": grades,
        "classes": np.minimum(grades, 2),
        "counts": np.random.default_rng(3).poisson(np.exp(0.5 * trend)).astype(y.dtype),
        "group": group,
        "grouped": noise(4, GROUPS)[group] + 0.5 * noise(5, POINTS),
    }
    return {name: host.array(value) for name, value in found.items()}


def models(host):
    """The twelve models of a host by name, with their data."""
    host = harness.load(host)
    data = arrays(host)
    one, two, three = (
        partial(perceptron, host, scaled(host), (INPUTS, HIDDEN, outputs)) for outputs in (1, 2, 3)
    )
    of = partial(observed, host, noise=0.3, cuts=[-1.0, 0.5, 1.5])
    of_line = partial(of, linear(host), head=lambda f: f)
    found = {
        "regression": (of(one, "Normal"), "x y"),
        "heteroscedastic": (of(two, "heteroscedastic"), "x heavy"),
        "robust": (of(one, "StudentT"), "x heavy"),
        "logistic": (of_line("Bernoulli"), "x binary"),
        "ordinal": (of(one, "ordinal"), "x grades"),
        "softmax": (of(three, "Categorical"), "x classes"),
        "Poisson": (of_line("Poisson"), "x counts"),
        "hierarchical": (partial(hierarchical, host), "group grouped"),
        "residual": (of(partial(residual, host), "Normal"), "x y"),
        "layer norm": (of(partial(normalised, host), "Normal"), "x y"),
        "two heads": (partial(two_sites, host), "x y binary"),
        "local latents": (partial(local_latents, host), "x y"),
    }
    return {
        name: (model, tuple(data[part] for part in names.split()))
        for name, (model, names) in found.items()
    }


if __name__ == "__main__":
    main()
