"""Modules of torch.nn between Bayesian layers, beside Trace_ELBO."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample
from torch import nn

from pyro_moments import DeterministicELBO, DVIGuide, UnsupportedMoments
from tests.oracles.pyro_samples import assert_near, trace_elbo, train
from tests.pyro import models
from tests.pyro.models import HIDDEN, INPUTS


class Branches(nn.Module):
    """Blocks in a ModuleList, and their concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(INPUTS, HIDDEN // 2) for _ in range(2)])
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        first, second = (branch(x) for branch in self.branches)
        return self.last(torch.cat([torch.relu(first), torch.tanh(second)], -1))


class Pooled(nn.Module):
    """Permutations, sums of features and masks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, HIDDEN), nn.Linear(2, 1)

    def forward(self, x):
        h = torch.relu(self.first(x)).T.unflatten(0, (HIDDEN, 1)).squeeze(1).T
        total, centre = h.sum(-1) / 4, h.mean(-1, keepdim=True)
        spread = (h - centre).masked_fill(torch.arange(HIDDEN) < 3, 0.0).mean(-1)
        return self.last(torch.stack([total, spread], dim=-1))


def between(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), *modules, nn.Linear(HIDDEN, 1))


def batch_norm() -> nn.Module:
    module = nn.BatchNorm1d(HIDDEN)
    nn.init.uniform_(module.running_mean)
    return module


# Share of the loss by which the matching may differ, on top of three standard errors.
CASES = {
    "layer norm": (lambda: between(nn.LayerNorm(HIDDEN), nn.ReLU()), "full", 0.01),
    "layer norm, diagonal": (lambda: between(nn.LayerNorm(HIDDEN), nn.ReLU()), "diagonal", 0.01),
    "layer norm of activations": (lambda: between(nn.ReLU(), nn.LayerNorm(HIDDEN)), "full", 0.01),
    "rms norm": (lambda: between(nn.RMSNorm(HIDDEN), nn.Tanh()), "full", 0.01),
    "group norm": (lambda: between(nn.GroupNorm(1, HIDDEN), nn.ReLU()), "full", 0.01),
    "batch norm": (lambda: between(batch_norm(), nn.ReLU()), "full", 0.005),
    "dropout": (lambda: between(nn.ReLU(), nn.Dropout(0.5)), "full", 0.005),
    "identity": (
        lambda: between(nn.Identity(), nn.Unflatten(1, (2, 4)), nn.Flatten()),
        "full",
        0.0,
    ),
    "branches": (Branches, "full", 0.01),
    "pooled": (Pooled, "full", 0.01),
    "attention of features": (lambda: between(nn.Softmax(-1)), "full", 0.01),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:.*mixes the feature axis")
def test_elbo_agrees_with_samples(name):
    make, covariance, share = CASES[name]
    pyro.set_rng_seed(0)
    model, guide = models.Regression(make()).eval(), DVIGuide()
    x, y = models.data()
    loss = train(model, guide, DeterministicELBO(covariance=covariance), x, y, steps=20)
    assert_near(loss, trace_elbo(model, guide, x, y, samples=300), share, errors=3)


def test_random_parameters_of_a_normalisation():
    """Weight and bias of nn.LayerNorm as latent sites."""
    network = between(nn.LayerNorm(HIDDEN), nn.ReLU())
    model = models.Regression(network)
    layer = network[1]
    for parameter in ("weight", "bias"):
        setattr(layer, parameter, PyroSample(dist.Normal(1.0, 0.3).expand([HIDDEN]).to_event(1)))
    pyro.set_rng_seed(0)
    guide, (x, y) = DVIGuide(), models.data()
    loss = train(model, guide, DeterministicELBO(), x, y, steps=20)
    assert_near(loss, trace_elbo(model, guide, x, y, samples=300), 0.01, errors=3)


class Words(PyroModule):
    """Regression on a random table of embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PyroModule[nn.Embedding](5, 4)
        self.table.weight = PyroSample(dist.Normal(0.0, 1.0).expand([5, 4]).to_event(2))
        self.last = models.make_bayesian(nn.Sequential(nn.Linear(4, 1)))

    def forward(self, words, y=None):
        mean = self.last(self.table(words)).squeeze(-1)
        return models.observe(words, dist.Normal(mean, 0.3), y)


def test_embedding():
    pyro.set_rng_seed(0)
    words = torch.arange(20) % 5
    model, guide, y = Words(), DVIGuide(), torch.sin(1.0 * words)
    loss = train(model, guide, DeterministicELBO(), words, y, steps=60)
    assert_near(loss, trace_elbo(model, guide, words, y, samples=300), 0.01, errors=3)


class ByHand(nn.Module):
    def forward(self, h):
        return (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)


class Attention(nn.Module):
    def forward(self, h):
        tokens = h.unflatten(-1, (4, 2))
        return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).flatten(1)


REFUSED = {
    "dropout that trains": (nn.AlphaDropout, "full", r"\.eval\(\)"),
    "batch norm that trains": (lambda: nn.BatchNorm1d(HIDDEN), "full", r"\.eval\(\)"),
    "normalisation by hand": (ByHand, "full", r"F\.layer_norm"),
    "attention": (Attention, "diagonal", "sample_sites"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_a_remedy(name):
    make, covariance, remedy = REFUSED[name]
    model = models.Regression(between(make())).train()
    with pytest.raises(UnsupportedMoments, match=remedy):
        DeterministicELBO(covariance=covariance).loss(model, DVIGuide(), *models.data())
