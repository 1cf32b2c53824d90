"""Whatever a model reads besides its arguments may change, and compiled=True sees it."""

import dataclasses
import sys
import types

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_moments import DeterministicELBO, DVIGuide
from tests.pyro.compiled.compiling import make

# A fallback would make the tests compare the eager program with itself.
pytestmark = pytest.mark.filterwarnings("error::moment_calculus.errors.CaptureWarning")


class Slots:
    __slots__ = ("scale",)


@dataclasses.dataclass(slots=True)
class Settings:
    scale: float = 1.0


class Config:
    scale, scales = 1.0, (1.0, 2.0)

    @property
    def noise(self):
        return self.scale

    @staticmethod
    def fixed():
        return 1.0


class Derived(Config):
    """Reads what its base holds."""


def by_default(scale=1.0):
    return scale


def by_keyword(*, scale=1.0):
    return scale


module = types.ModuleType("settings_of_a_test")
module.scale = 1.0
numbers, names, slots, settings = np.ones(3), {"narrow"}, Slots(), Settings()
slots.scale = 1.0


PLACES = {
    "slot": (lambda: slots.scale, lambda patch: patch.setattr(slots, "scale", 2.0)),
    "tensor in a slot": (
        lambda: torch.as_tensor(slots.scale),
        lambda patch: patch.setattr(slots, "scale", torch.tensor(2.0)),
    ),
    "dataclass with slots": (
        lambda: settings.scale,
        lambda patch: patch.setattr(settings, "scale", 2.0),
    ),
    "attribute of a class": (
        lambda: Config.scale,
        lambda patch: patch.setattr(Config, "scale", 2.0),
    ),
    "attribute of a base": (
        lambda: Derived.scale,
        lambda patch: patch.setattr(Config, "scale", 2.0),
    ),
    "attribute that hides the base's": (
        lambda: Derived.scale,
        lambda patch: patch.setattr(Derived, "scale", 2.0, raising=False),
    ),
    "tuple of a class": (
        lambda: Config.scales[0],
        lambda patch: patch.setattr(Config, "scales", (2.0, 2.0)),
    ),
    "static method": (
        lambda: Config.fixed(),
        lambda patch: patch.setattr(Config, "fixed", lambda: 2.0),
    ),
    "default argument": (
        by_default,
        lambda patch: patch.setattr(by_default, "__defaults__", (2.0,)),
    ),
    "default of a keyword": (
        by_keyword,
        lambda patch: patch.setattr(by_keyword, "__kwdefaults__", {"scale": 2.0}),
    ),
    "code of a function": (
        by_default,
        lambda patch: patch.setattr(by_default, "__code__", (lambda scale: 2 * scale).__code__),
    ),
    "global of a module": (lambda: module.scale, lambda patch: patch.setattr(module, "scale", 2.0)),
    "contents of a NumPy array": (
        lambda: float(numbers[1]),
        lambda patch: numbers.__setitem__(1, 2.0),
    ),
    "set": (
        lambda: 1.0 if "narrow" in names else 2.0,
        lambda patch: patch.setattr(sys.modules[__name__], "names", set()),
    ),
    "contents of a set": (
        lambda: 1.0 if "narrow" in names else 2.0,
        lambda patch: names.discard("narrow"),
    ),
}


def model_of(scale):
    def model():
        weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        pyro.sample("obs", dist.Normal(weight.sum(), scale()), obs=torch.tensor(0.3))

    return model


@pytest.mark.parametrize("place", PLACES)
def test_changes_are_seen(place, monkeypatch):
    scale, change = PLACES[place]
    model, guide = model_of(scale), DVIGuide()
    elbo, eager = make(), DeterministicELBO()
    before = elbo.loss(model, guide)
    assert elbo.loss(model, guide) == before
    change(monkeypatch)
    assert elbo.loss(model, guide) == pytest.approx(eager.loss(model, guide), rel=1e-6)
    assert elbo.loss(model, guide) != pytest.approx(before, rel=1e-3)
    names.add("narrow")
    numbers[1] = 1.0


@pytest.mark.parametrize("name", ["scale", "noise"])
def test_attributes_of_an_object_that_come_later_are_seen(name, monkeypatch):
    held = Derived()
    model, guide = model_of(lambda: getattr(held, name)), DVIGuide()
    elbo, eager = make(), DeterministicELBO()
    before = elbo.loss(model, guide)
    held.scale = 2.0
    assert elbo.loss(model, guide) == pytest.approx(eager.loss(model, guide), rel=1e-6)
    assert elbo.loss(model, guide) != pytest.approx(before, rel=1e-3)
