"""What compiled=True reads anew at every call, and what makes it capture again."""

from contextlib import nullcontext

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import nn

from pyro_moments import DeterministicELBO, DVIGuide
from tests.pyro import models
from tests.pyro.compiled.compiling import assert_same, make, programs
from tests.pyro.models import subsampled

X, Y = models.data()


# A fallback would make the tests compare the eager program with itself.
pytestmark = pytest.mark.filterwarnings("error::moment_calculus.errors.CaptureWarning")


def test_new_signatures_are_captured():
    model, guide = models.sequential(), DVIGuide()
    elbo, eager = make(), DeterministicELBO()
    for size in (20, 7, 20, 7):
        assert_same(elbo, eager, model, guide, X[:size], Y[:size])
    assert len(programs(elbo)) == 2
    strided = X.T.contiguous().T
    assert_same(elbo, eager, model, guide, strided, Y)
    by_name = elbo.loss(model, guide, X, y=Y)
    assert by_name == pytest.approx(eager.loss(model, guide, X, y=Y), rel=1e-6)


def test_arguments_may_coincide():
    """The same tensor given twice is two inputs."""

    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        models.observe(x, dist.Normal(w * x, 0.5), y)

    elbo, eager, guide = make(), DeterministicELBO(), DVIGuide()
    _, y = models.data()
    for pair in ((y, y), (y, y + 1), (y - 1, y)):
        assert elbo.loss(model, guide, *pair) == eager.loss(model, guide, *pair)
    assert len(programs(elbo)) == 1


def few(x, y):
    return subsampled(x, y, 3)


SAMPLED = {"sample_sites": ["precision"], "num_particles": 2}


@pytest.mark.parametrize(("model", "options"), [(few, {}), (models.with_precision, SAMPLED)])
def test_subsamples_and_sampled_sites_are_drawn_anew(model, options):
    """By Inductor too: ``test_inductor_equals_the_eager_program``."""
    elbo, guide = make(**options), DVIGuide(init_scale=0.3)
    elbo.loss(model, guide, X, Y)
    pyro.set_rng_seed(3)
    found = [elbo.loss(model, guide, X, Y) for _ in range(4)]
    pyro.set_rng_seed(3)
    expected = [DeterministicELBO(**options).loss(model, guide, X, Y) for _ in range(4)]
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


def test_settings_of_the_objective_are_watched():
    elbo, guide = make(), DVIGuide()
    elbo.loss(subsampled, guide, X, Y)
    elbo.sample_sites, elbo.num_particles = frozenset(["w"]), 3
    pyro.set_rng_seed(3)
    elbo.loss(subsampled, guide, X, Y)
    assert len(programs(elbo)) == 2
    pyro.set_rng_seed(3)
    found = elbo.loss(subsampled, guide, X, Y)
    pyro.set_rng_seed(3)
    eager = DeterministicELBO(sample_sites=["w"], num_particles=3)
    assert found == pytest.approx(eager.loss(subsampled, guide, X, Y), rel=1e-6)


def test_inference_mode():
    elbo, guide = make(), DVIGuide()
    loss = elbo.loss(subsampled, guide, X, Y)
    with torch.inference_mode():
        assert elbo.loss(subsampled, guide, X, Y) == pytest.approx(loss, rel=1e-6)
    elbo.loss_and_grads(subsampled, guide, X, Y)


class Schedule:
    """A user's own object."""

    def __init__(self):
        self.noise = 0.5


SCHEDULE = Schedule()


def scheduled(x, y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    models.observe(x, dist.Normal(x @ w, SCHEDULE.noise), y)


def test_globals_and_handlers_are_watched(monkeypatch):
    annealing = poutine.handlers.ScaleMessenger(scale=0.5)
    model, guide = annealing(scheduled), DVIGuide()
    elbo, eager = make(), DeterministicELBO()
    assert elbo.loss(model, guide, X, Y) == eager.loss(model, guide, X, Y)
    annealing.scale = 0.75
    assert elbo.loss(model, guide, X, Y) == eager.loss(model, guide, X, Y)
    monkeypatch.setattr(SCHEDULE, "noise", 0.25)
    assert elbo.loss(model, guide, X, Y) == eager.loss(model, guide, X, Y)
    assert elbo.loss(model, guide, X, Y + 1) == eager.loss(model, guide, X, Y + 1)
    assert len(programs(elbo)) == 3


def test_parameter_store():
    def guide(x, y):
        loc = pyro.param("loc", torch.ones(3))
        scale = pyro.param("scale", torch.full((3,), 0.2), constraint=dist.constraints.positive)
        pyro.sample("w", dist.Normal(loc, scale).to_event(1))

    elbo, eager = make(), DeterministicELBO()
    assert_same(elbo, eager, subsampled, guide, X, Y)
    pyro.get_param_store()["scale"] = torch.full((3,), 0.7)
    assert_same(elbo, eager, subsampled, guide, X, Y)
    with poutine.trace(param_only=True) as capture:
        elbo.loss(subsampled, guide, X, Y)
    torch.testing.assert_close(
        capture.trace.nodes["scale"]["value"].detach(), torch.full((3,), 0.7)
    )
    pyro.clear_param_store()
    assert_same(elbo, eager, subsampled, guide, X, Y)


def sites_of(elbo, handler, *program):
    with poutine.trace(param_only=True) as capture, handler:
        elbo.loss_and_grads(*program)
    return dict(capture.trace.nodes)


@pytest.mark.parametrize("hidden", [None, "locs", "scales"])
def test_handlers_see_the_parameters_of_the_eager_program(hidden):
    model, guide = models.sequential(), DVIGuide()
    elbo, eager = make(), DeterministicELBO()
    for _ in range(2):
        hide = poutine.block_messenger.BlockMessenger(
            hide_fn=lambda site: hidden is not None and hidden in site["name"]
        )
        within = nullcontext() if hidden is None else hide
        expected, found = (sites_of(e, within, model, guide, *models.data()) for e in (eager, elbo))
        assert found.keys() == expected.keys()
        assert found
        for name, site in found.items():
            assert site.keys() == expected[name].keys()
            torch.testing.assert_close(site["value"], expected[name]["value"])
            assert site["value"].unconstrained() is expected[name]["value"].unconstrained()
            for key in ("type", "is_observed", "infer", "scale", "done", "stop"):
                assert site[key] == expected[name][key]
