"""Which weights a guide switches off, and the smaller network without idle units."""

import dataclasses
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx
from torch import nn

import numpyro_moments
import pyro_moments
from moment_inference.criticism.idle_units import Dense, without_idle_units
from tests.checks.marks import IN_PYRO
from tests.response.models import mean_field

ROWS, INPUTS = 60, 4
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, INPUTS)).astype(np.float32)
CLASS = (X[:, 0] - X[:, 1] > 0).astype(np.float32)
# Means of 4 × 1 weights: two that the classes need, one that they do not, one that misleads.
LOC, SCALE = np.array([4.0, -4.2, 0.01, 2.0]), np.array([0.1, 0.1, 1.0, 1.5])


def classifier(host):
    def model(x, y=None):
        weight = host.language.sample("weight", host.package.LogUniform().expand([4]).to_event(1))
        rate = host.language.sample("rate", host.dist.LogNormal(0.0, 1.0))
        with host.language.plate("rows", len(x)):
            host.language.sample("obs", host.dist.Bernoulli(logits=rate * (x @ weight)), obs=y)

    return model


def reported(host, *data, **options):
    """The report of a guide with means and standard deviations as above."""
    model = classifier(host)
    fit = host.fit(model, *data, steps=1)
    found = mean_field(host, weight=(LOC, SCALE), rate=(0.0, 0.1))
    params = {name: host.array(np.asarray(part, np.float32)) for name, part in found.items()}
    fit = dataclasses.replace(fit, params=params)
    return host.package.pruning_report(model, fit, *data, **options)


def test_the_report_says_what_is_left_without_the_weights(host):
    data = host.array(X), host.array(CLASS)
    report = reported(host, *data, threshold=3.0)
    np.testing.assert_allclose(
        report.log_alpha["weight"], 2 * np.log(SCALE / np.abs(LOC)), rtol=1e-5
    )
    np.testing.assert_array_equal(report.off["weight"], [False, False, True, False])
    np.testing.assert_allclose(report.weights["weight"], [4.0, -4.2, 0.0, 2.0])
    assert report.weights["rate"] == pytest.approx(1.0)  # its support has no zero

    def scores(weight):
        logits = X @ np.asarray(weight, float)
        logs = -np.log1p(np.exp(-np.where(CLASS > 0, logits, -logits)))
        return logs, ((logits > 0) == CLASS).mean()

    for level, weight in (report.whole, LOC), (report.pruned, report.weights["weight"]):
        logs, right = scores(weight)
        assert level.log_likelihood == pytest.approx(logs.mean(), rel=1e-5)
        assert level.standard_error == pytest.approx(logs.std() / math.sqrt(ROWS), rel=1e-4)
        assert level.accuracy == pytest.approx(right)
    assert (report.bytes_dense, report.bytes_sparse) == (16, 24)
    assert "25.0% of the weights are off" in repr(report)


def test_data_choose_the_threshold(host):
    """The misleading weight goes with the idle one; the others do not."""
    report = reported(host, host.array(X), host.array(CLASS))
    np.testing.assert_array_equal(report.off["weight"], [False, False, True, True])
    assert report.pruned.accuracy == 1.0
    assert report.at(3.0).off["weight"].sum() == 1
    assert [level.off for level in report.levels] == [0.0, 0.25, 0.5, 0.75, 1.0]
    flipped = host.array(1 - CLASS)  # where the weights are of no use
    other = reported(host, host.array(X), flipped, held_out=(host.array(X), flipped))
    assert other.pruned.off == 1.0


@IN_PYRO
def test_what_cannot_be_off_is_refused(host):
    data = host.array(X), host.array(CLASS)
    with pytest.raises(ValueError, match=r"sites=\['rate'\].*'weight' among 'weight', 'rate'"):
        reported(host, *data, sites=["rate"])
    with pytest.raises(ValueError, match="observes nothing"):
        reported(host, *data, held_out=(data[0],))


FIRST = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, 0.0], [1.0, 1.0, 1.0]], np.float32)
SECOND = np.array(
    [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]], np.float32
)  # takes no notice of unit 3
LAST = np.array([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0]], np.float32)  # nor of unit 1
BIASES = [np.array(part, np.float32) for part in ([0.1, 0.7, -0.2, 0.3], [0.0, 1.0, 0.2], [0.5, 0])]
WEIGHTS = (FIRST, SECOND, LAST)


def test_idle_units_go_until_none_is_left():
    """Unit 1 is constant, 3 is not taken; in the second layer 2 is then constant, 1 not taken."""
    layers = list(map(Dense, WEIGHTS, BIASES))
    smaller = without_idle_units(layers, [np.tanh, np.tanh])
    assert [layer.weight.shape for layer in smaller] == [(1, 3), (1, 1), (2, 1)]
    np.testing.assert_allclose(chain(smaller), chain(layers), rtol=1e-6)
    idle = without_idle_units([Dense(0 * FIRST, BIASES[0]), Dense(SECOND, BIASES[1])], [np.tanh])
    assert idle[0].weight.shape == (1, 3)


def chain(layers):
    """What the layers make of inputs, with tanh between them."""
    value = X[:, :3]
    for weight, bias in layers[:-1]:
        value = np.tanh(value @ weight.T + bias)
    return value @ layers[-1].weight.T + layers[-1].bias


class Report:
    """The weights of a report."""

    def __init__(self, form, transposed):
        kinds = ("weight", "kernel")[transposed], "bias"
        self.weights = {}
        for place, arrays in enumerate(zip(WEIGHTS, BIASES, strict=True)):
            for kind, array in zip(kinds, arrays, strict=True):
                self.weights[form.format(2 * place, kind)] = array.T if transposed else array


EXPECTED = chain(list(map(Dense, WEIGHTS, BIASES)))


def test_smaller_networks_of_torch():
    net = nn.Sequential(
        nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Dropout(0.2), nn.Linear(3, 2)
    )
    report = Report("net.{}.{}", transposed=False)
    report.weights["net.5.weight"] = report.weights.pop("net.4.weight")
    report.weights.pop("net.4.bias")  # a parameter of the network itself
    with torch.no_grad():
        net[5].bias.copy_(torch.tensor(BIASES[2]))
    small = pyro_moments.smaller_network(net, report)
    assert [small[place].out_features for place in (0, 2, 5)] == [1, 1, 2]
    x = torch.tensor(X[:, :3])
    np.testing.assert_allclose(small(x).detach(), EXPECTED, rtol=1e-5)
    assert net[0].out_features == 4
    with pytest.raises(TypeError, match=r"BatchNorm1d: units are left out of an nn.Sequential"):
        pyro_moments.smaller_network(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), report)
    with pytest.raises(ValueError, match=r"none of the network's parameters 1.weight"):
        pyro_moments.smaller_network(nn.Sequential(nn.ReLU(), nn.Linear(3, 4)), report)
    with pytest.raises(ValueError, match=r"'0.weight' has the shape \(4, 5\)"):
        pyro_moments.smaller_network(nn.Sequential(nn.Linear(5, 4)), report)


def test_smaller_networks_of_linen():
    net = linen.Sequential([linen.Dense(4), jnp.tanh, linen.Dense(3), jnp.tanh, linen.Dense(2)])
    small, variables = numpyro_moments.smaller_network(net, Report("net/layers_{}.{}", True))
    assert variables["params"]["layers_2"]["kernel"].shape == (1, 1)
    np.testing.assert_allclose(small.apply(variables, X[:, :3]), EXPECTED, rtol=1e-5)
    report = Report("net/layers_{}.{}", True)
    rest = {"layers_4": {"bias": report.weights.pop("net/layers_4.bias")}}
    small, variables = numpyro_moments.smaller_network(net, report, rest)
    np.testing.assert_allclose(small.apply(variables, X[:, :3]), EXPECTED, rtol=1e-5)
    with pytest.raises(ValueError, match=r"'layers_4.bias' is no site.*params=fit.params"):
        numpyro_moments.smaller_network(net, report)
    unknown = linen.Sequential([linen.Dense(4), linen.LayerNorm(), linen.Dense(3)])
    with pytest.raises(TypeError, match="LayerNorm: units are left out of a Sequential of flax"):
        numpyro_moments.smaller_network(unknown, Report("net/layers_{}.{}", True))


def test_smaller_networks_of_nnx():
    keys = nnx.Rngs(jax.random.key(0))
    net = nnx.Sequential(
        nnx.Linear(3, 4, rngs=keys), jnp.tanh, nnx.Linear(4, 3, rngs=keys), jnp.tanh,
        nnx.Linear(3, 2, rngs=keys),
    )  # fmt: skip
    report = Report("net/layers.{}.{}", True)
    rest = {"layers": {4: {"bias": report.weights.pop("net/layers.4.bias")}}}
    small = numpyro_moments.smaller_network(net, report, rest)
    np.testing.assert_allclose(small(X[:, :3]), EXPECTED, rtol=1e-5)
    assert small.layers[0].kernel.shape == (3, 1)


def test_without_flax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flax", None)
    with pytest.raises(ImportError, match=r'pip install "pyro-moments\[flax\]"'):
        numpyro_moments.smaller_network(None, None)
