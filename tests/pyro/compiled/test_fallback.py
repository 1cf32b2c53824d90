"""Where compiled=True falls back to the eager program, or to replaying, after one warning."""

import random

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import nn

from moment_calculus.errors import CaptureWarning
from pyro_moments import DeterministicELBO, DVIGuide
from tests.pyro import models
from tests.pyro.compiled.compiling import make, programs
from tests.pyro.models import subsampled

X, Y = models.data()


def assert_falls_back(model, message, *args, elbo=None):
    elbo, guide = elbo or make(), DVIGuide()
    pyro.set_rng_seed(0)
    with pytest.warns(CaptureWarning, match=message) as caught:
        losses = [elbo.loss(model, guide, *args) for _ in range(3)]
    assert sum(warning.category is CaptureWarning for warning in caught) == 1
    pyro.set_rng_seed(0)
    assert losses == [DeterministicELBO().loss(model, guide, *args) for _ in range(3)]


@pytest.mark.parametrize("kind", ["outside", "derived", "argument"])
def test_control_flow_falls_back(kind):
    threshold = torch.zeros(())

    def model(x, y):
        level = {"outside": threshold, "derived": 2 * threshold, "argument": x.mean()}[kind]
        scale = 0.5 if level > -10 else 1.0
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        models.observe(x, dist.Normal(x @ w, scale), y)

    assert_falls_back(model, "depends on the values of tensors", X, Y)


def test_numpy_inside_the_program_falls_back():
    def model(x, y):
        return subsampled(torch.from_numpy(2 * x.numpy()), y)

    assert_falls_back(model, "NumPy array", X, Y)


def test_random_numbers_of_python_fall_back():
    model = models.regression(lambda f: dist.Normal(f + random.random(), 0.5))
    elbo, guide = make(), DVIGuide()
    with pytest.warns(CaptureWarning, match="random numbers"):
        assert len({elbo.loss(model, guide, X, Y) for _ in range(4)}) == 4


def test_side_effects_fall_back():
    state = {"calls": 0}

    def model(x, y):
        state["calls"] += 1
        return subsampled(x, y)

    assert_falls_back(model, "it changes 'calls'", X, Y)


def test_arguments_that_are_not_tensors_fall_back():
    def model(x, y):
        return subsampled(torch.as_tensor(x), y)

    assert_falls_back(model, "an argument is a ndarray", X.numpy(), Y)


def test_handlers_around_the_loss_fall_back():
    elbo, guide = make(), DVIGuide()
    plain = elbo.loss(subsampled, guide, X, Y)
    with poutine.scale(scale=2.0), pytest.warns(CaptureWarning, match="inside a ScaleMessenger"):
        assert elbo.loss(subsampled, guide, X, Y) == pytest.approx(2 * plain, rel=1e-5)


def test_numbers_that_change_at_every_call_fall_back():
    elbo, guide = make(), DVIGuide()

    def model(x, y, noise):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        models.observe(x, dist.Normal(x @ w, noise), y)

    steps = [float(step) for step in range(1, 13)]
    with pytest.warns(CaptureWarning, match="pass as a tensor what differs") as caught:
        losses = [elbo.loss(model, guide, X, Y, step) for step in steps]
    assert losses == [DeterministicELBO().loss(model, guide, X, Y, step) for step in steps]
    assert len(caught) == 1


def test_without_a_compiler_the_graph_is_replayed():
    def broken(graph, inputs):
        raise RuntimeError("no compiler found")

    elbo = make(broken)
    assert_falls_back(subsampled, "replayed one by one: RuntimeError: no compiler", X, Y, elbo=elbo)
    assert len(programs(elbo)) == 1


def test_changes_in_place_fall_back():
    norm = nn.BatchNorm1d(3)

    def model(x, y):
        return subsampled(norm(x), y)

    with pytest.warns(CaptureWarning, match="changes a tensor in place"):
        make().loss(model, DVIGuide(), X, Y)


def test_a_compiler_that_is_wrong_is_not_used():
    def wrong(graph, inputs):
        return lambda *tensors: [2 * result for result in graph(*tensors)]

    elbo = make(wrong)
    assert_falls_back(subsampled, "ArithmeticError: result 0 is off by 1e", X, Y, elbo=elbo)
