"""What compiled=True reads anew, what makes it capture again, and where it falls back."""

from __future__ import annotations

import random
import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import nn

from moment_calculus.errors import CaptureWarning
from pyro_moments import DeterministicELBO, DVIGuide
from pyro_moments.capture import inductor, replay
from tests.pyro import models
from tests.pyro.compiling import assert_same, make, programs, subsampled


@pytest.fixture(autouse=True)
def _no_fallback():
    """A fallback would make the tests compare the eager program with itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        yield


def test_new_signatures_are_captured():
    x, y = models.data()
    model, guide = models.sequential(), DVIGuide()
    elbo, eager = make(), DeterministicELBO()
    for size in (20, 7, 20, 7):
        assert_same(elbo, eager, model, guide, x[:size], y[:size])
    assert len(programs(elbo)) == 2
    strided = x.T.contiguous().T
    assert elbo.loss(model, guide, strided, y) == eager.loss(model, guide, strided, y)
    assert elbo.loss(model, guide, x, y=y) == eager.loss(model, guide, x, y=y)


def test_arguments_may_coincide():
    """The same tensor given twice is two inputs."""

    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(w * x, 0.5), obs=y)

    elbo, eager, guide = make(), DeterministicELBO(), DVIGuide()
    _, y = models.data()
    for pair in ((y, y), (y, y + 1), (y - 1, y)):
        assert elbo.loss(model, guide, *pair) == eager.loss(model, guide, *pair)
    assert len(programs(elbo)) == 1


def test_subsamples_are_drawn_anew():
    x, y = models.data()
    elbo, guide = make(), DVIGuide()
    elbo.loss(subsampled, guide, x, y, 3)
    pyro.set_rng_seed(3)
    found = [elbo.loss(subsampled, guide, x, y, 3) for _ in range(5)]
    pyro.set_rng_seed(3)
    expected = [DeterministicELBO().loss(subsampled, guide, x, y, 3) for _ in range(5)]
    assert len(set(found)) == 5
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("backend", [replay, inductor])
def test_sampled_sites_are_drawn_anew(backend):
    x, y = models.data()

    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        precision = pyro.sample("precision", dist.Gamma(2.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(x @ w, precision.rsqrt()), obs=y)

    options = {"sample_sites": ["precision"], "num_particles": 2}
    elbo, guide = make(backend, **options), DVIGuide(init_scale=0.3)
    elbo.loss(model, guide, x, y)
    pyro.set_rng_seed(3)
    found = [elbo.loss(model, guide, x, y) for _ in range(4)]
    pyro.set_rng_seed(3)
    expected = [DeterministicELBO(**options).loss(model, guide, x, y) for _ in range(4)]
    assert len(set(found)) == 4
    assert found == pytest.approx(expected, rel=1e-6)


def test_tensors_of_closures_are_read_anew():
    x, y = models.data()
    noise = 0.5
    elbo, eager, guide = make(), DeterministicELBO(), DVIGuide()

    def model():
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", 20):
            pyro.sample("obs", dist.Normal(x @ w, noise), obs=y)

    first = elbo.loss(model, guide)
    x = x + 1  # another tensor
    y += 2  # the same tensor, changed
    assert elbo.loss(model, guide) == eager.loss(model, guide) != first
    assert len(programs(elbo)) == 1
    noise = 0.25
    assert elbo.loss(model, guide) == eager.loss(model, guide)
    assert len(programs(elbo)) == 2


class Attributes(pyro.nn.PyroModule):
    """A model that keeps its data, its settings and a helper in attributes."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.inputs, self.targets = models.data()
        self.register_buffer("shift", torch.zeros(()))
        self.settings = {"noise": [0.5]}
        self.dropout = nn.Dropout(0.0)

    def forward(self):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        x = self.dropout(self.inputs)
        scale = self.settings["noise"][0] * self.factor * (2 if self.training else 1)
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(x @ w + self.shift, scale), obs=self.targets)


def test_attributes_are_watched(monkeypatch):
    elbo, eager, guide = make(), DeterministicELBO(), DVIGuide()
    model = Attributes()
    losses = [elbo.loss(model, guide)]

    def changed(captures):
        losses.append(elbo.loss(model, guide))
        assert losses[-1] == pytest.approx(eager.loss(model, guide), rel=1e-6)
        assert losses[-1] != losses[-2]
        assert len(programs(elbo)) == captures

    model.inputs = model.inputs + 1
    changed(1)
    model.shift.fill_(0.3)
    changed(1)
    model.shift = torch.tensor(0.7)
    changed(1)
    model.settings["noise"][0] = 0.4
    changed(2)
    model.eval()
    changed(3)
    monkeypatch.setattr(Attributes, "factor", 3.0)
    changed(4)
    model.inputs, model.targets = model.inputs[:9], model.targets[:9]
    changed(5)


def test_parameter_store():
    x, y = models.data()

    def guide(x, y):
        loc = pyro.param("loc", torch.ones(3))
        scale = pyro.param("scale", torch.full((3,), 0.2), constraint=dist.constraints.positive)
        pyro.sample("w", dist.Normal(loc, scale).to_event(1))

    elbo, eager = make(), DeterministicELBO()
    assert_same(elbo, eager, subsampled, guide, x, y)
    pyro.get_param_store()["scale"] = torch.full((3,), 0.7)
    assert_same(elbo, eager, subsampled, guide, x, y)
    with poutine.trace(param_only=True) as capture:
        elbo.loss(subsampled, guide, x, y)
    torch.testing.assert_close(
        capture.trace.nodes["scale"]["value"].detach(), torch.full((3,), 0.7)
    )
    pyro.clear_param_store()
    assert_same(elbo, eager, subsampled, guide, x, y)


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
    x, y = models.data()
    threshold = torch.zeros(())

    def model(x, y):
        level = {"outside": threshold, "derived": 2 * threshold, "argument": x.mean()}[kind]
        scale = 0.5 if level > -10 else 1.0
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(x @ w, scale), obs=y)

    assert_falls_back(model, "depends on the values of tensors", x, y)


def test_numpy_inside_the_program_falls_back():
    x, y = models.data()

    def model(x, y):
        return subsampled(torch.from_numpy(2 * x.numpy()), y)

    assert_falls_back(model, "NumPy array", x, y)


def test_random_numbers_of_python_fall_back():
    x, y = models.data()

    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(x @ w + random.random(), 0.5), obs=y)

    elbo, guide = make(), DVIGuide()
    with pytest.warns(CaptureWarning, match="random numbers"):
        assert len({elbo.loss(model, guide, x, y) for _ in range(4)}) == 4


def test_side_effects_fall_back():
    x, y = models.data()
    state = {"calls": 0}

    def model(x, y):
        state["calls"] += 1
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(x @ w, 0.5), obs=y)

    assert_falls_back(model, "it changes 'calls'", x, y)


def test_arguments_that_are_not_tensors_fall_back():
    x, y = models.data()

    def model(x, y):
        return subsampled(torch.as_tensor(x), y)

    assert_falls_back(model, "an argument is a ndarray", x.numpy(), y)


def test_handlers_around_the_loss_fall_back():
    x, y = models.data()
    elbo, guide = make(), DVIGuide()
    plain = elbo.loss(subsampled, guide, x, y)
    with poutine.scale(scale=2.0), pytest.warns(CaptureWarning, match="inside a ScaleMessenger"):
        assert elbo.loss(subsampled, guide, x, y) == pytest.approx(2 * plain, rel=1e-5)


def test_numbers_that_change_at_every_call_fall_back():
    x, y = models.data()
    elbo, guide = make(), DVIGuide()

    def model(x, y, noise):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(x @ w, noise), obs=y)

    steps = [float(step) for step in range(1, 13)]
    with pytest.warns(CaptureWarning, match="pass as a tensor what differs") as caught:
        losses = [elbo.loss(model, guide, x, y, step) for step in steps]
    assert losses == [DeterministicELBO().loss(model, guide, x, y, step) for step in steps]
    assert len(caught) == 1


def test_without_a_compiler_the_graph_is_replayed():
    x, y = models.data()

    def broken(graph, inputs):
        raise RuntimeError("no compiler found")

    elbo = make(broken)
    assert_falls_back(subsampled, "replayed one by one: RuntimeError: no compiler", x, y, elbo=elbo)
    assert len(programs(elbo)) == 1


def test_changes_in_place_fall_back():
    x, y = models.data()
    norm = nn.BatchNorm1d(3)

    def model(x, y):
        return subsampled(norm(x), y)

    with pytest.warns(CaptureWarning, match="changes a tensor in place"):
        make().loss(model, DVIGuide(), x, y)
