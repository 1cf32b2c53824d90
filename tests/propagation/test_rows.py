"""Which functions of torch keep rows apart, and which mix them; every call is followed anew."""

import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.functional as F

from pyro_moments import BBAlphaELBO, DeterministicELBO, DVIGuide

ROWS = 6
X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
ONES, EYE = torch.ones(ROWS), torch.eye(ROWS)

LIKELIHOODS = {
    "normal": lambda f: dist.Normal(f[:, 0], F.softplus(f[:, 1])),
    "classes": lambda f: dist.Categorical(logits=f),
    "an event": lambda f: dist.Normal(f, 1.0).to_event(1),
    "bernoulli": lambda f: dist.Bernoulli(logits=f[:, 0]),
    "poisson": lambda f: dist.Poisson(f[..., 0].exp()),
    "student": lambda f: dist.StudentT(4.0, f[:, 0], 1.0),
    "gamma": lambda f: dist.Gamma(2.0, f[:, 0].exp()),
    "log-normal": lambda f: dist.LogNormal(f[:, 0], 1.0),
    "binomial": lambda f: dist.Binomial(5, logits=f[:, 0]),
    "negative binomial": lambda f: dist.NegativeBinomial(5.0, logits=f[:, 0]),
    "laplace": lambda f: dist.Laplace(f[:, 0], 1.0),
}
APART = {
    "arithmetic": lambda h: 2 * torch.tanh(h) ** 2 - h / (1 + X[:, 0]),
    "shapes": lambda h: h.unsqueeze(-1).expand(-1, 4).reshape(ROWS, 2, 2).flatten(1).sum(-1),
    "transposes": lambda h: (torch.stack([X[:, 0]] * 2) * h[None, :]).t().permute(1, 0).mean(0),
    "softmax": lambda h: torch.cat([h[:, None], X], -1).softmax(-1)[..., 0],
    "a map of its own": lambda h: F.linear(h[:, None], torch.ones(4, 1)).logsumexp(1, keepdim=True)[
        :, 0
    ],
    "a batch of maps": lambda h: (EYE @ torch.ones(ROWS, 2)) @ torch.ones(2) + h,
}
MIXED = {
    "pooled": lambda h: h + h.mean(),
    "centred": lambda h: h - h.mean(0, keepdim=True),
    "compared with a mean": lambda h: h * torch.where(h.mean(0) > 0.5, 3.0, 1.0),
    "detached": lambda h: h + 2 * h.detach().mean(0),
    "neighbours": lambda h: torch.cat([h[:1] + 2 * h[1:2], h[1:]]),
    "sorted": lambda h: torch.sort(h).values,
    "summed up": lambda h: h.cumsum(0),
    "a matrix of rows": lambda h: torch.ones(ROWS, ROWS) @ h,
    "flipped": lambda h: h[:, None].expand(-1, 2).flip(1, 0)[:, 0],
    "in deviations": lambda h: h / h[None].std(1, True),
    "a number": lambda h: h * (1 if h.sum().item() > 0 else 2),
    "in place": lambda h: h.add_(1.0),
    "other rows": lambda h: h[torch.arange(ROWS).flip(0)],
    "covariances": lambda h: (h[:, None] * h[None, :]).sum(-1),
}


def drawn_together(function, likelihood, y, elbo=None):
    """The sites that are drawn once for all rows."""

    def model(x, y=None):
        weight = pyro.sample("weight", dist.Normal(0.0, 1.0).expand([4, 3]).to_event(2))
        vector = pyro.sample("vector", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            f = function(x @ vector)[..., None] + F.linear(x, weight)
            pyro.sample("obs", likelihood(f), obs=y)

    guide, elbo = DVIGuide(model), elbo or DeterministicELBO(propagation="sampled")
    guide(X, y)
    elbo.loss(model, guide, X, y)
    (together,) = elbo.runner.shared_draws.values()
    return together


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_keep_rows_apart(name):
    y = torch.ones(ROWS, 4) if name == "an event" else torch.ones(ROWS)
    energy = BBAlphaELBO(0.5, propagation="sampled", num_particles=3)
    assert drawn_together(lambda h: h, LIKELIHOODS[name], y) == set()
    assert drawn_together(lambda h: h, LIKELIHOODS[name], y, energy) == set()


@pytest.mark.parametrize("name", APART)
def test_what_keeps_rows_apart(name):
    assert drawn_together(APART[name], LIKELIHOODS["normal"], ONES) == set()


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_rows(name):
    assert "vector" in drawn_together(MIXED[name], LIKELIHOODS["normal"], ONES)


def test_what_was_found_of_one_call_is_not_believed_of_the_next():
    def model(x, mixing, y=None):
        vector = pyro.sample("vector", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            f = mixing @ (x @ vector) if mixing is not None else x @ vector
            pyro.sample("obs", dist.Normal(f, 1.0), obs=y)

    guide, elbo = DVIGuide(model), DeterministicELBO(propagation="sampled")
    guide(X, None, ONES)
    elbo.loss(model, guide, X, None, ONES)
    assert all(not together for together in elbo.runner.shared_draws.values())
    elbo.loss(model, guide, X, EYE, ONES)
    assert any("vector" in together for together in elbo.runner.shared_draws.values())
