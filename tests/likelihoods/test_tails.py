"""Expected log densities of networks of one hidden layer whose scale is an exponential output."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.location_scale import normal
from moment_calculus.likelihoods.tails import NONE, output_of, tail_of
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian, Spread
from moment_calculus.values.propagation import Propagation

UNITS, INPUTS, ROWS = 4, 2, 3
RANDOM = np.random.default_rng(1)
X, Y = RANDOM.normal(size=(ROWS, INPUTS)), RANDOM.normal(size=ROWS)
SHAPES = {"w": (UNITS, INPUTS), "b": (UNITS,), "v": (2, UNITS), "c": (2,)}
MEANS = {site: 0.7 * RANDOM.normal(size=shape) for site, shape in SHAPES.items()}
DEVIATIONS = {site: RANDOM.uniform(0.3, 0.6, size=shape) for site, shape in SHAPES.items()}
RATE = 0.5


def values(asarray, covariance="full"):
    """The weights and biases as independent Gaussians."""
    return {
        site: Gaussian(
            asarray(mean),
            Spread(asarray(DEVIATIONS[site] ** 2)),
            support={site: -1},
            propagation=Propagation(covariance=covariance),
        )
        for site, mean in MEANS.items()
    }


def in_one_layer(sites):
    """Location and log scale as two outputs of a layer with a bias."""
    hidden = apply(activation("relu"), linear(sites["x"], sites["w"], sites["b"]))
    out = linear(hidden, sites["v"], sites["c"])
    return index(out, (..., 0)), index(out, (..., 1))


def with_biases_added(sites):
    """The same, with biases that are added after the maps."""
    first = add(linear(sites["x"], sites["w"]), sites["b"])
    out = add(linear(apply(activation("relu"), first), sites["v"]), sites["c"])
    parts = index(out, (..., 0)), index(out, (..., -1))
    # nothing is shared, so that few moments are needed
    assert [output_of(part).chosen for part in parts] == [range(1), range(1, 2)]
    return parts


def by_slices(sites):
    """The same, with outputs as slices, as programs of JAX take them."""
    hidden = apply(activation("relu"), linear(sites["x"], sites["w"], sites["b"]))
    out = linear(hidden, sites["v"], sites["c"])
    parts = [reshape(index(out, (..., slice(k, k + 1))), (ROWS,)) for k in range(2)]
    assert [output_of(part).chosen for part in parts] == [range(1), range(1, 2)]
    return tuple(parts)


def with_a_common_output(sites):
    """A location that is the sum of both outputs."""
    location, log_scale = in_one_layer(sites)
    return add(location, log_scale), log_scale


@functools.cache
def density(shared, row):
    """E log N by the product over units of one-dimensional integrals over each."""
    a_mean = MEANS["w"] @ X[row] + MEANS["b"]
    a_scale = np.sqrt(DEVIATIONS["w"] ** 2 @ X[row] ** 2 + DEVIATIONS["b"] ** 2)
    weight = np.stack([MEANS["v"][0] + shared * MEANS["v"][1], -2 * RATE * MEANS["v"][1]])
    noise = DEVIATIONS["v"] ** 2
    var_d, var_t = noise[0] + shared * noise[1], 4 * RATE**2 * noise[1]
    crossed = -2 * RATE * shared * noise[1]
    biases = DEVIATIONS["c"] ** 2
    log_mass, centre, variance = 0.0, 0.0, 0.0
    for j in range(UNITS):
        integrand = lambda h, power, j=j: (  # noqa: E731
            h**power
            * np.exp(weight[1, j] * h + 0.5 * var_t[j] * h * h)
            * norm.pdf(h, a_mean[j], a_scale[j])
        )
        mass, *moments = (quad(integrand, 0, 60, args=(k,), points=(1, 5))[0] for k in range(5))
        mass += norm.cdf(-a_mean[j] / a_scale[j])
        first, second, third, fourth = np.array(moments) / mass
        mean_j = weight[0, j] * first + crossed[j] * second
        squared = weight[0, j] ** 2 * second + 2 * weight[0, j] * crossed[j] * third
        squared += crossed[j] ** 2 * fourth + var_d[j] * second
        log_mass, centre = log_mass + np.log(mass), centre + mean_j
        variance += squared - mean_j**2
    bias = MEANS["c"][0] + shared * MEANS["c"][1] - 2 * RATE * shared * biases[1]
    log_mass += -2 * RATE * MEANS["c"][1] + 2 * RATE**2 * biases[1]
    variance += biases[0] + shared * biases[1]
    relu = activation("relu").moments(a_mean, a_scale**2)[0]
    log_scale = RATE * (MEANS["v"][1] @ relu + MEANS["c"][1])
    squared = ((Y[row] - bias - centre) ** 2 + variance) * np.exp(log_mass)
    return -0.5 * np.log(2 * np.pi) - log_scale - 0.5 * squared


def expected(network, asarray, covariance="full"):
    location, log_scale = network({"x": asarray(X)} | values(asarray, covariance))
    scale = apply(activation("exp"), scale_shift(log_scale, RATE))
    return normal(asarray(Y), location, scale)


KINDS = [("torch", "full"), ("torch", "diagonal"), ("torch", "backward")]
NETWORKS = [in_one_layer, with_biases_added, by_slices, with_a_common_output]
KINDS += [("float32", "full"), ("jax", "full")]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("kind", "covariance"), KINDS)
def test_the_tails_of_a_scale_are_exact(network, kind, covariance):
    shared = 1.0 if network is with_a_common_output else 0.0
    exact = [density(shared, row) for row in range(ROWS)]
    with jax.enable_x64(True):
        single = lambda x: torch.as_tensor(x, dtype=torch.float32)  # noqa: E731
        asarray = {"torch": torch.as_tensor, "float32": single, "jax": jnp.asarray}[kind]
        found = np.asarray(expected(network, asarray, covariance))
    np.testing.assert_allclose(found, exact, rtol=1e-3 if kind == "float32" else 1e-8)


def test_what_is_not_exact_keeps_its_gaussian():
    """Units that share a bias, and heads that share a weight."""
    sites = {"x": torch.as_tensor(X)} | values(torch.as_tensor)
    scalar = Gaussian(torch.tensor(0.3, dtype=torch.float64), Spread(torch.tensor(0.2)), axis=None)
    first = add(linear(sites["x"], sites["w"]), scalar)
    out = linear(apply(activation("relu"), first), sites["v"])
    assert tail_of(index(out, (..., 1)), index(out, (..., 0))) is NONE
    hidden = apply(activation("relu"), linear(sites["x"], sites["w"]))
    heads = [index(linear(hidden, sites["v"]), (..., 0)) for _ in range(2)]
    assert tail_of(*heads) is NONE
    assert tail_of(heads[0], index(linear(hidden, sites["v"]), (..., 0)).mean) is not NONE
