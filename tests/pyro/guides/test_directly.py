"""A guide that only samples its sites is traced without Pyro's handlers, to the same end."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger

from pyro_moments import BBAlphaELBO, DeterministicELBO, DVIGuide

DATA = torch.tensor([0.3, -1.2, 0.8])


def model(y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    s = pyro.sample("s", dist.LogNormal(0.0, 0.3))
    with pyro.plate("data", 3):
        pyro.sample("obs", dist.Normal(w, s), obs=y)


def in_plates(y):
    with pyro.plate("data", 3):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        pyro.sample("obs", dist.Normal(w, 1.0), obs=y)


@pytest.fixture(autouse=True, params=[False, True], ids=["global", "local parameters"])
def _parameters(request):
    pyro.clear_param_store()
    with pyro.settings.context(module_local_params=request.param):
        yield


class Recorder(Messenger):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def _pyro_sample(self, msg):
        self.names.append(msg["name"])


def made(of=model, kind=DVIGuide):
    guide = kind(of)
    guide(DATA)
    return guide


def ran(guide):
    """The same guide as a function, of which nothing is known."""
    return lambda y: guide(y)


def test_same_loss_and_gradients():
    guide = made()
    found = []
    for version in (guide, ran(guide)):
        guide.zero_grad()
        loss = DeterministicELBO().loss_and_grads(model, version, DATA)
        found.append([loss, *(p.grad.clone() for p in guide.parameters())])
    assert guide.posteriors_alone() is not None
    torch.testing.assert_close(*found, rtol=0.0, atol=0.0)


def test_handlers_around_it_are_heard():
    guide, seen = made(), []
    with poutine.trace(param_only=True) as parameters:
        DeterministicELBO().loss(model, guide, DATA)
    assert len(parameters.trace.param_nodes) == 4
    plain = DeterministicELBO().loss(model, guide, DATA)
    with poutine.scale(scale=0.5), Recorder(seen):
        assert DeterministicELBO().loss(model, guide, DATA) == pytest.approx(0.5 * plain)
    assert seen == ["w", "s", "w", "s", "data", "obs"]


def test_own_ways_to_run_are_kept():
    class Own(DVIGuide):
        called = False

        def forward(self, *args, **kwargs):
            self.called = True
            return super().forward(*args, **kwargs)

    guide = made(kind=Own)
    guide.called = False
    DeterministicELBO().loss(model, guide, DATA)
    assert guide.called
    assert guide.posteriors_alone() is None


def test_hooks_are_called():
    guide, calls = made(), []
    guide.register_forward_hook(lambda *_: calls.append(1))
    DeterministicELBO().loss(model, guide, DATA)
    assert calls == [1]


@pytest.mark.parametrize("objective", [DeterministicELBO, BBAlphaELBO])
def test_invalid_parameters_are_named(objective):
    guide = made()
    with torch.no_grad():
        guide.locs.w_unconstrained[1] = math.nan
    with pytest.raises(ValueError, match="Expected parameter loc"):
        objective().loss(model, guide, DATA)


def test_plates_and_the_first_call_need_a_run():
    assert DVIGuide(model).posteriors_alone() is None
    assert made(in_plates).posteriors_alone() is None
