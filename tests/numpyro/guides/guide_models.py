"""Small models with every structure that a guide has to follow, and their arguments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from flax import linen, nnx
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.contrib.module import random_eqx_module, random_flax_module, random_nnx_module

from moment_guides.numpyro.empirical_bayes import EmpiricalBayesNormal

POINTS, INPUTS, HIDDEN = 6, 3, 2
X = jnp.sin(jnp.arange(POINTS * INPUTS, dtype=jnp.float32)).reshape(POINTS, INPUTS)
Y = jnp.cos(X[:, 0])


class Model(NamedTuple):
    """A model with its arguments and the latent sites that its guide must have."""

    function: Callable
    latent_shapes: dict[str, tuple[int, ...]]
    args: tuple[Any, ...] = (X, Y)


def observe(mean, scale, y):
    with numpyro.plate("data", POINTS):
        numpyro.sample("obs", dist.Normal(mean, scale), obs=y)


def supports(x, y=None):
    """One site on each kind of support."""
    slope = numpyro.sample("slope", dist.LogNormal(jnp.zeros(INPUTS), 1.0).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([2]))
    share = numpyro.sample("share", dist.Beta(2.0, 3.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(INPUTS)))
    below = numpyro.sample("below", dist.TruncatedNormal(high=-1.0))
    between = numpyro.sample("between", dist.Uniform(-2.0, 3.0))
    ordered = numpyro.sample(
        "ordered", dist.TransformedDistribution(dist.Normal(jnp.zeros(2), 1.0).to_event(1), ORDERED)
    )
    mean = x @ (slope + weights) + rate.sum() + share + below + between + ordered.sum()
    observe(mean, noise, y)


ORDERED = dist.transforms.OrderedTransform()


def nested_plates(x, y=None):
    """Latent sites in none, one and both of two plates."""
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 3, dim=-2):
        row = numpyro.sample("row", dist.Normal(level, 1.0))
        with numpyro.plate("columns", 2, dim=-1):
            cell = numpyro.sample("cell", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    with numpyro.plate("columns", 2, dim=-1):
        column = numpyro.sample("column", dist.HalfCauchy(1.0))
    observe((cell.sum(-1) + row + column).reshape(POINTS), 0.5, y)


def subsampled(x, y=None):
    """Global and local latent sites, in a plate of which each step sees a part."""
    slope = numpyro.sample("slope", dist.Normal(jnp.zeros(INPUTS), 1.0).to_event(1))
    with numpyro.plate("data", POINTS, subsample_size=2) as index:
        local = numpyro.sample("local", dist.Normal(0.0, 1.0))
        positive = numpyro.sample("positive", dist.LogNormal(jnp.zeros(2), 1.0).to_event(1))
        mean = x[index] @ slope + local + positive.sum(-1)
        numpyro.sample("obs", dist.Normal(mean, 0.5), obs=None if y is None else y[index])


def scaled_and_masked(x, y=None):
    """Latent sites under the scale and mask handlers."""
    with handlers.scale(scale=2.0), numpyro.plate("inputs", INPUTS):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with handlers.mask(mask=jnp.array([True, False])), numpyro.plate("two", 2):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    with handlers.mask(mask=jnp.arange(POINTS) < 4):
        observe(x @ slope + shift.sum(), 0.5, y)


def random_walk(x, y=None):
    """Latent sites inside NumPyro's scan."""

    def step(state, target):
        state = numpyro.sample("state", dist.Normal(state, 1.0))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        weights = numpyro.sample("weights", EmpiricalBayesNormal([2]))
        numpyro.sample("obs", dist.Normal(state + weights.sum(), scale), obs=target)
        return state, None

    start = numpyro.sample("start", dist.Normal(0.0, 1.0))
    scan(step, start, y, length=POINTS)


def empirical_bayes(x, y=None):
    """The empirical-Bayes prior, by itself, expanded and in a plate."""
    matrix = numpyro.sample("matrix", EmpiricalBayesNormal([INPUTS, HIDDEN]))
    rows = numpyro.sample("rows", EmpiricalBayesNormal([2]).expand([HIDDEN]).to_event(1))
    with numpyro.plate("sets", HIDDEN):
        bias = numpyro.sample("bias", EmpiricalBayesNormal([2], alpha=2.0))
    scalar = numpyro.sample("scalar", EmpiricalBayesNormal())
    observe((jnp.tanh(x @ matrix) @ (rows + bias)).sum(-1) + scalar, 0.5, y)


def normal_prior(name, shape):
    return dist.Normal(0.0, 1.0)


class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, x):
        hidden = linen.relu(linen.Dense(HIDDEN, name="first")(x))
        return linen.Dense(1, name="last")(hidden)


class NnxNetwork(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(INPUTS, HIDDEN, rngs=rngs)
        self.last = nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))


def flax_linen(x, y=None):
    network = random_flax_module("net", LinenNetwork(), normal_prior, input_shape=(INPUTS,))
    observe(network(x)[:, 0], 0.5, y)


def flax_nnx(x, y=None):
    network = random_nnx_module("net", NnxNetwork(nnx.Rngs(0)), normal_prior)
    observe(network(x)[:, 0], 0.5, y)


def equinox_module(x, y=None):
    module = equinox.nn.MLP(INPUTS, 1, HIDDEN, depth=1, key=jax.random.key(0))
    network = jax.vmap(random_eqx_module("net", module, normal_prior))
    observe(network(x)[:, 0], 0.5, y)


FLAX_WEIGHTS = {"kernel": ((INPUTS, HIDDEN), (HIDDEN, 1)), "bias": ((HIDDEN,), (1,))}
EQUINOX_WEIGHTS = {"weight": ((HIDDEN, INPUTS), (1, HIDDEN)), "bias": ((HIDDEN,), (1,))}


def weights(layers: tuple[str, str], shapes: dict[str, tuple]) -> dict[str, tuple[int, ...]]:
    """Shapes of a network's weights by the names that NumPyro gives them."""
    return {
        f"net/{layer}.{name}": shape
        for name, pair in shapes.items()
        for layer, shape in zip(layers, pair, strict=True)
    }


MODELS = {
    "supports": Model(
        supports,
        {
            "slope": (INPUTS,),
            "noise": (),
            "rate": (2,),
            "share": (),
            "weights": (INPUTS - 1,),
            "below": (),
            "between": (),
            "ordered": (2,),
        },
    ),
    "nested_plates": Model(
        nested_plates, {"level": (), "row": (3, 1), "cell": (3, 2, 2), "column": (2,)}
    ),
    "subsampled": Model(
        subsampled, {"slope": (INPUTS,), "local": (POINTS,), "positive": (POINTS, 2)}
    ),
    "scaled_and_masked": Model(scaled_and_masked, {"slope": (INPUTS,), "shift": (2,)}),
    "random_walk": Model(
        random_walk, {"start": (), "state": (POINTS,), "scale": (POINTS,), "weights": (POINTS, 2)}
    ),
    "empirical_bayes": Model(
        empirical_bayes,
        {"matrix": (INPUTS, HIDDEN), "rows": (HIDDEN, 2), "bias": (HIDDEN, 2), "scalar": ()},
    ),
    "flax_linen": Model(flax_linen, weights(("first", "last"), FLAX_WEIGHTS)),
    "flax_nnx": Model(flax_nnx, weights(("first", "last"), FLAX_WEIGHTS)),
    "equinox": Model(equinox_module, weights(("layers[0]", "layers[1]"), EQUINOX_WEIGHTS)),
}
