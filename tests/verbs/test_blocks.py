"""Rows are predicted in blocks where that is asked for, or where memory asks for it."""

import math
import resource

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import pyro_moments
from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.predictions import blocks
from moment_calculus.values.memory import OF_A_MEAN, TooLarge, count_mean, counted
from tests.fitting.models import fresh, started


def predicted(host, model, **options):
    fresh(host.name)
    guide, x = host.package.DVIGuide(init_scale=0.2), host.x[:40]
    params = started(host, model, guide, x, host.y[:40])
    return host.package.predict(model, guide, *params, x, **options)["obs"]


def centred(host):
    """Rows that depend on each other by their mean."""
    return lambda x, y=None: host.regression(x - x.mean(0), y)


def numbered(host):
    """Rows that depend on their place."""
    return lambda x, y=None: host.regression(x + host.np.arange(len(x))[:, None], y)


def by_parts(host, size=8):
    """The regression, whose plate draws a subsample of the rows; None: all of them."""

    def model(x, y=None):
        weight = host.weight()
        with host.language.plate("data", len(x), subsample_size=size) as rows:
            obs = None if y is None else y[rows]
            host.language.sample("obs", host.dist.Normal(x[rows] @ weight, 0.3), obs=obs)

    return model


@pytest.mark.parametrize(
    ("host", "propagation", "size"),
    [
        ("pyro", "analytic", 8),
        ("pyro", "mean", 8),
        ("pyro", "mean", None),
        ("numpyro", "analytic", 8),
    ],
    indirect=["host"],
)
def test_rows_that_a_plate_draws_in_training_are_all_predicted(host, propagation, size):
    models = host.regression, by_parts(host, size)
    whole, parts = (predicted(host, each, propagation=propagation).mean for each in models)
    np.testing.assert_allclose(to_numpy(parts), to_numpy(whole), rtol=1e-5, atol=1e-6)


def test_blocks_equal_all_rows_at_once(host):
    whole, cut = (predicted(host, host.regression, batch_size=size) for size in (40, 9))
    assert (type(whole), type(cut)) == (host.package.Prediction, blocks.BlockedSite)
    y = host.y[:40]
    for ask in (
        lambda site: site.mean,
        lambda site: site.std,
        lambda site: site.log_prob(y),
        lambda site: site.interval(0.9)[1],
        lambda site: site.cdf(0.3),
        lambda site: site.credible_interval(0.5)[0],
        lambda site: site.mutual_information,
        lambda site: host.package.calibration(site, y).log_score,
    ):
        found, expected = to_numpy(ask(cut)), to_numpy(ask(whole))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dependent", [centred, numbered])
def test_rows_that_depend_on_each_other_are_not_cut(host, dependent, monkeypatch):
    model = dependent(host)
    with pytest.raises(ValueError, match="depend on each other"):
        predicted(host, model, batch_size=9)
    expected = predicted(host, model)
    monkeypatch.setattr(blocks, "LARGE", 100.0)
    monkeypatch.setattr(blocks, "FEW", 2)
    found = predicted(host, model)
    assert type(found) is host.package.Prediction
    np.testing.assert_array_equal(to_numpy(found.variance), to_numpy(expected.variance))


def test_memory_asks_for_blocks(host, monkeypatch):
    whole = predicted(host, host.regression)
    monkeypatch.setattr(blocks, "LARGE", 100.0)
    monkeypatch.setattr(blocks, "FEW", 2)
    found = predicted(host, host.regression)
    assert type(found) is blocks.BlockedSite
    np.testing.assert_allclose(to_numpy(found.variance), to_numpy(whole.variance), rtol=1e-5)


@pytest.mark.parametrize(("kind", "are_cut"), [("regression", True), ("centred", False)])
def test_held_out_scores_are_sums_over_blocks(host, monkeypatch, kind, are_cut):
    model = {"regression": host.regression, "centred": centred(host)}[kind]
    monkeypatch.setattr(blocks, "FEW", 2)
    monkeypatch.setattr(blocks, "OF_A_BLOCK", 1.0)
    sizes, scores = [], []

    def counting(x, y=None):
        sizes.append(len(x))
        return model(x, y)

    for limit in (blocks.LARGE, 100.0):
        monkeypatch.setattr(blocks, "LARGE", limit)
        fresh(host.name)
        sizes.clear()
        fit = host.fit(counting, host.x[:40], host.y[:40], steps=1, held_out=host.rows(40, 90))
        scores.append([*fit.held_out.values()])
    assert (16 in sizes) == are_cut  # the fewest rows of a block; the last one has two
    np.testing.assert_allclose(*scores, rtol=1e-5)


def test_a_program_stops_before_its_values_are_too_large(host):
    with counted() as memory:
        predicted(host, host.regression)
    with pytest.raises(TooLarge), counted(memory.bytes / 2):
        predicted(host, host.regression)


def test_draws_know_the_rows_of_all_blocks():
    host = fresh("pyro")
    found = predicted(host, host.regression, batch_size=9)
    assert tuple(found.sample(5).shape) == (5, 40)
    with pytest.raises(Exception, match="not attributed"):
        found.attribution()


def test_parameters_that_changed_are_noticed():
    host = fresh("pyro")
    guide, x, y = host.package.DVIGuide(), host.x[:40], host.y[:40]
    started(host, host.regression, guide, x, y)
    found = host.package.predict(host.regression, guide, x, batch_size=9)["obs"]
    guide.locs.weight.data.add_(1.0)
    with pytest.raises(RuntimeError, match="call predict again"):
        found.log_prob(y)


def test_sampled_rows_are_not_cut(host):
    with pytest.raises(ValueError, match="shares draws between rows"):
        predicted(host, host.regression, batch_size=9, propagation="mean")


def wide(x, y=None):
    first, last = (
        pyro.sample(name, dist.Normal(torch.zeros(shape), 1.0).to_event(2))
        for name, shape in {"first": (8, 256), "last": (256, 2)}.items()
    )
    logits = torch.relu(x @ first) @ last
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Categorical(logits=logits), obs=y)


def test_what_all_rows_share_makes_no_block_smaller():
    """Values of weights, such as scaled ones, are made once for each block."""

    def predict(chosen):
        count_mean(np.zeros(1000))
        count_mean(np.zeros((len(chosen), 2)))

    *_, bytes_of_a_row = blocks._few_alone(blocks.Rows(predict, 100), 4)
    assert bytes_of_a_row == OF_A_MEAN * 2 * 8


def test_all_rows_are_not_tried_where_a_few_tell_that_they_are_too_many():
    """At once they would make arrays of all rows before the first value is counted."""

    def predict(chosen):
        assert chosen is not None
        count_mean(np.broadcast_to(0.0, (len(chosen), 10**6)))
        return np.zeros(())

    assert blocks.rows_of_a_sum(blocks.Rows(predict, 5000), math.inf) == blocks.FEWEST


def test_many_rows_take_the_memory_of_a_block():
    x, guide = torch.randn(6000, 8), pyro_moments.DVIGuide()
    pyro_moments.DeterministicELBO().loss(wide, guide, x[:4], torch.zeros(4).long())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pyro_moments.predict(wide, guide, x, covariance="full")
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken * 1024 < 0.75 * 2**30  # at once each covariance takes 1.5 GiB, and there are more
