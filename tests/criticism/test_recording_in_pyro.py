"""Programs of torch with draws where they were recorded with moments."""

import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.functional as F
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal

from pyro_moments import (
    DeterministicELBO,
    DVIGuide,
    MCDropoutGuide,
    MomentTensor,
    UnsupportedMoments,
    moment_accuracy,
)
from pyro_moments.evaluation.tensor import OBSERVER

X = torch.linspace(-1, 1, 15).reshape(5, 3)


def weight(name, *shape):
    return pyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


def observe(f):
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.2))
    with pyro.plate("data", len(f)):
        pyro.sample("obs", dist.Normal(f, scale), obs=torch.zeros(len(f)))


def in_place(x):
    h = F.relu(F.linear(x, weight("first", 4, 3)), inplace=True)
    h += 1.0
    first, *rest = h.unbind(-1)
    observe(2 - sum(rest, first))


def dropout_of_data(x):
    observe(F.dropout(x, 0.3) @ weight("first", 3))


def dropout_of_units(x):
    h = F.dropout(torch.tanh(x @ weight("first", 3, 4)), 0.1)
    observe(h @ weight("last", 4))


def subsampled(x):
    slope = weight("slope", 3)
    pyro.deterministic("twice", 2 * slope)
    with pyro.plate("data", 5, subsample_size=2) as rows:
        pyro.sample("obs", dist.Normal(x[rows] @ slope, 0.3), obs=torch.zeros(2))


PROGRAMS = {
    in_place: "linear relu add sub",
    dropout_of_data: "matmul",
    dropout_of_units: "matmul tanh dropout matmul",
    subsampled: "mul matmul",
}


def accuracy(model, guide=None, **options):
    guide = guide or DVIGuide(init_scale=0.2)
    return moment_accuracy(model, guide, X, **options)


@pytest.mark.parametrize("model", PROGRAMS, ids=lambda model: model.__name__)
def test_programs_are_followed(model):
    result = accuracy(model)
    operations = [row.operation for row in result]
    assert all(name in operations for name in PROGRAMS[model].split())
    assert all(row.is_accurate for row in result), result
    assert result.left_out == ()


@pytest.mark.parametrize("kind", [AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal])
def test_guides_of_the_host_are_drawn(kind):
    guide = kind(in_place, init_scale=0.2)
    guide(X)
    result = accuracy(in_place, guide)
    assert result.first is None, result
    assert result["obs.loc"].shape == (5,)
    assert {row.line for row in result if row.operation == "exp"} <= {""}  # the guide's own


def test_masks_are_drawn_and_the_gaussian_that_matches_them_is_named():
    def model(x):
        wide = torch.cat([x, x[:, :1]], -1)  # masks of fewer inputs are summed over
        observe(torch.tanh(3 * F.linear(wide, weight("first", 4, 4))).sum(-1))

    guide = MCDropoutGuide(p=0.7)
    torch.manual_seed(1)
    DeterministicELBO().loss(lambda x: model(x), guide, X)
    result = moment_accuracy(model, guide, X, covariance="full")
    assert result["linear"].is_accurate
    assert result.first.operation == "tanh"
    assert "matched by a Gaussian" in result.sentence


def test_another_path_is_refused():
    def model(x):
        f = x @ weight("first", 3)
        observe(f if isinstance(f, MomentTensor) else torch.tanh(f))

    with pytest.raises(UnsupportedMoments, match="with draws it calls tanh") as refusal:
        accuracy(model)
    assert "test_recording_in_pyro.py" in str(refusal.value)
    assert OBSERVER.get() is None


def test_what_cannot_be_vectorised_is_drawn_one_by_one(monkeypatch):
    tried = []

    def refuse(*args, **kwargs):
        tried.append(args)
        raise RuntimeError("vmap: this cannot be vectorised")

    monkeypatch.setattr(torch, "vmap", refuse)
    result = accuracy(in_place, num_samples=40)
    assert tried
    assert len(result) > 5
    assert result["obs.loc"].sampled_mean.shape == (5,)
    assert result["obs.loc"].sampled_standard_deviation.min() > 0


def test_lines_have_the_module():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return torch.tanh(x)

    layer = Layer()
    row = accuracy(lambda x: observe(layer(x @ weight("first", 3))))["tanh"]
    assert "test_recording_in_pyro.py:" in row.line
    assert row.line.endswith("in Layer.forward")
