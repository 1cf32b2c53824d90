"""The accuracy of moments, layer by layer: what is exact, and where it breaks."""

import math
from functools import cache

import jax
import numpy as np
import numpyro
import pytest
import torch
from pyro.infer.autoguide import init_to_value

from moment_calculus.functions.base import Delegating
from moment_calculus.values.propagation import RuleBook
from tests.checks.marks import IN_PYRO
from tests.fitting.models import started
from tests.response.models import HOSTS, doubles, fresh


@cache
def exact(name):
    """A network of two hidden layers, by the exact rules."""
    host = fresh(name)
    return accuracy(host, network(host, "relu", "tanh"), X, Y, num_samples=4000)


class HalvedTanh(RuleBook):
    """Half of the variance of tanh."""

    def ruled(self, function):
        return _Halved(function) if function.name == "tanh" else function


class _Halved(Delegating):
    def moments(self, mean, variance):
        mean, variance = self.function.moments(mean, variance)
        return mean, 0.5 * variance

    def hermite(self, mean, variance, order):
        return [term * 0.5**0.5 for term in self.function.hermite(mean, variance, order)]

    def gain(self, mean, variance):
        return self.function.gain(mean, variance) * 0.5**0.5

    def pair_covariance(self, mean, variance, covariance):
        return NotImplemented


@IN_PYRO
def test_a_linear_model_is_exact(host):
    result = accuracy(host, network(host), X, Y)
    assert [row.label for row in result] == [result.rows[0].label, "obs.loc"]
    location = result["obs.loc"]
    assert location.shape == (len(X),)
    assert location.mean.dtype == np.float64
    np.testing.assert_allclose(location.standard_deviation, 0.3 * np.linalg.norm(X, axis=1))
    for row in result:
        errors, tolerance = row.standard_errors, 5
        assert (np.abs(row.mean - row.sampled_mean) < tolerance * errors[0]).all()
        off = np.abs(row.standard_deviation - row.sampled_standard_deviation)
        assert (off < tolerance * errors[1]).all()
        assert row.is_accurate
        assert row.measures.mean_error.value < 4 * row.measures.noise
        assert row.reason == ""
    assert result.first is None
    assert result.sentence == "accurate to Monte Carlo error in all 2 rows (1000 draws)"


@IN_PYRO
def test_a_broken_rule_is_found_and_named(host):
    model = network(host, "relu", "tanh")
    result = accuracy(host, model, X, Y, rules=HalvedTanh("halved"), num_samples=2000)
    broken = result.first
    assert broken.operation == "tanh"
    assert [row.operation for row in result.rows[: broken.number - 1]].count("relu") == 1
    ratio = broken.measures.deviation_ratio
    assert abs(ratio.value - math.sqrt(0.5)) < 0.02 + 4 * ratio.standard_error
    assert broken.reason == "by a rule of the rule book 'halved'"
    assert broken.line.startswith(network.__code__.co_filename)
    assert f"breaks at row {broken.number} (tanh, test_moment_accuracy.py:" in result.sentence
    assert "rule book 'halved'" in result.sentence
    assert not exact(host.name)["tanh"].reason.startswith("by a rule")
    assert exact(host.name)["tanh"].measures.departure < 0.05


@IN_PYRO
def test_diagonal_covariance_breaks_behind_the_second_hidden_layer(host):
    """Its units depend on those of the first, which weights of one sign cannot hide."""
    model = network(host, "relu", "relu", "relu")
    shapes = {"weight0": (3, 8), "weight1": (8, 8), "weight2": (8, 8), "weight": (8, 1)}
    values = {name: np.full(shape, 0.4) for name, shape in shapes.items()}
    values |= {f"bias{place}": np.full(8, 0.5) for place in range(3)}
    options = {"init_scale": 0.1, "values": values}
    diagonal = accuracy(host, model, X, Y, covariance="diagonal", **options)
    full = accuracy(host, model, X, Y, **options)
    maps = [row for row in diagonal if row.operation in ("matmul", "dot_general")]
    assert diagonal.first is maps[2]
    assert maps[2].reason == 'covariance="diagonal" drops the dependence between its inputs'
    assert maps[2].measures.deviation_ratio.value < 0.8
    assert "breaks at row 7" in diagonal.sentence
    assert all(row.is_accurate for row in full.rows[: maps[2].number])
    assert diagonal.worst.measures.departure > full.worst.measures.departure
    assert all(row.measures.correlation_error is None for row in diagonal)
    known = [row.measures.correlation_error for row in full if row.covariance is not None]
    assert len(known) >= 5
    assert max(known) < 0.06


def test_both_hosts_have_the_same_rows():
    names = {"dot_general": "matmul"}
    found = []
    for name in HOSTS:
        host = fresh(name)
        result = accuracy(host, network(host, "tanh"), X, Y, num_samples=40)
        found.append(
            [(row.site, row.shape, names.get(row.operation, row.operation)) for row in result]
        )
    assert [row[:2] for row in found[0]] == [row[:2] for row in found[1]]
    assert found[0][:-1] == found[1][:-1]
    assert [row[2] for row in found[0][:-1]] == "matmul add tanh matmul".split()


@IN_PYRO
def test_functions_whose_moments_are_approximate_are_named(host):
    functions = {"numpyro": jax.nn.softmax, "pyro": torch.softmax}

    def model(x, y=None):
        p = functions[host.name](x @ weights(host, "weight", 3, 2), -1)
        host.observe(x, host.dist.Normal(p[:, 0], 0.3), y)

    result = accuracy(host, model, X, Y, init_scale=1.0)
    assert [row.operation for row in result][1] == "softmax"
    assert result["softmax"].reason.startswith("the moments of this function are approximate")


@IN_PYRO
def test_nothing_is_said_of_elements_that_no_draw_moves(host):
    def model(y=None):
        f = weights(host, "weight", 3) * host.array(np.array([1.0, 0.0, 2.0]))
        host.language.deterministic("zero", 0.0 * f)
        with host.language.plate("data", 3):
            host.language.sample("obs", host.dist.Normal(f, 0.3), obs=y)

    result = accuracy(host, model, Y[:3])
    for label in ("zero", "obs.loc"):
        measures = result[label].measures
        numbers = [*measures.mean_error, *measures.deviation_ratio, measures.departure]
        numbers += [*measures.worst_mean[:2], *measures.worst_deviation[:2]]
        assert np.isfinite(numbers).all()
        assert result[label].is_accurate
    assert result["zero"].measures.deviation_ratio.value == 1.0
    assert "nan" not in str(result)


@IN_PYRO
def test_recording_changes_no_number(host):
    model = network(host)

    def loss(guide, arrays):
        return host.package.DeterministicELBO().loss(model, guide, *arrays)

    with doubles(host):
        guide, known, arrays = guided(host, model, X, Y)
        before = loss(guide, arrays)
        host.package.moment_accuracy(model, guide, *arrays, num_samples=40, **known)
        assert loss(guide, arrays) == before


@IN_PYRO
def test_the_certificate_bounds_the_error_of_a_truncated_series(host):
    book, many = RuleBook("few", mehler_order=1), exact(host.name)
    host = fresh(host.name)  # the start of the exact ones, whether they were made before or now
    few = accuracy(host, network(host, "relu", "tanh"), X, Y, rules=book, num_samples=40)
    assert many["relu"].certificate is None
    assert many["tanh"].certificate < 1e-9
    np.testing.assert_array_equal(few["tanh"].mean, many["tanh"].mean)
    deviation = many["tanh"].standard_deviation
    units = deviation[:, :, None] * deviation[:, None, :]
    error = np.abs((few["tanh"].covariance - many["tanh"].covariance) / units).max()
    assert 1e-6 < error <= few["tanh"].certificate < 1


@IN_PYRO
def test_too_few_draws_and_unknown_rows_are_refused(host):
    model = network(host)
    with pytest.raises(ValueError, match="at least 40"):
        accuracy(host, model, X, Y, num_samples=39)
    with pytest.raises(KeyError, match=r"no row 'loc'; there are .*obs\.loc"):
        accuracy(host, model, X, Y, num_samples=40)["loc"]


INITIAL = {"numpyro": numpyro.infer.init_to_value, "pyro": init_to_value}
random = np.random.default_rng(4)
X = random.normal(size=(6, 3))
Y = np.sin(X[:, 0])
ACTIVATIONS = {
    "relu": {"numpyro": jax.nn.relu, "pyro": torch.relu},
    "tanh": {"numpyro": jax.numpy.tanh, "pyro": torch.tanh},
}


def weights(host, name, *shape):
    prior = host.dist.Normal(host.array(0.0), host.array(1.0)).expand(shape)
    return host.language.sample(name, prior.to_event(len(shape)))


def network(host, *activations, units=8):
    """Maps written alike in both hosts, with these activations between them."""

    def model(x, y=None):
        for place, name in enumerate(activations):
            x = x @ weights(host, f"weight{place}", x.shape[-1], units)
            x = ACTIVATIONS[name][host.name](x + weights(host, f"bias{place}", units))
        f = (x @ weights(host, "weight", x.shape[-1], 1))[:, 0]
        host.observe(x, host.dist.Normal(f, 0.3), y)

    return model


def guided(host, model, *data, init_scale=0.3, values=None):
    """A guide at its initial parameters, these, and the data, in double precision."""
    options = {"init_scale": init_scale}
    if values is not None:
        arrays = {name: host.array(value) for name, value in values.items()}
        options["init_loc_fn"] = INITIAL[host.name](values=arrays)
    guide = host.package.DVIGuide(**options)
    arrays = [host.array(part) for part in data]
    given = started(host, model, guide, *arrays)
    known = {"params": given[0], "rng_key": jax.random.key(1)} if given else {}
    return guide, known, arrays


def accuracy(host, model, *data, init_scale=0.3, values=None, **options):
    """Of the moments under a guide at its initial parameters, in double precision."""
    with doubles(host):
        guide, known, arrays = guided(host, model, *data, init_scale=init_scale, values=values)
        return host.package.moment_accuracy(model, guide, *arrays, **known, **options)
