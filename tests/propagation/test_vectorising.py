"""Programs of Pyro that torch.vmap cannot run, of which one particle can be run."""

import copy
import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import nn

from pyro_moments.particles.noise import draw_by_gammas
from tests.fitting.models import fresh

TOTAL, NORM = torch.zeros(4), nn.BatchNorm1d(1)
X, Y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.zeros(4)


@pytest.fixture
def host():
    return fresh("pyro")


def read(f):
    return f * 2 if f.sum().item() > 0 else f


def branched(f):
    return f * 2 if f.sum() > 0 else f


def masked(f):
    return f + f[f > 0].sum()


def normalised(f):
    return NORM(f[:, None])[:, 0]


def in_place(f):
    TOTAL.add_(f)
    return TOTAL


LOOPED = (read, branched, masked, normalised, in_place)


def model_of(host, function):
    def model(x, y=None):
        loc = function(x @ host.weight())
        host.observe(x, host.dist.Normal(loc, 1.0), y)

    return model


@pytest.mark.parametrize("function", LOOPED)
def test_what_vmap_refuses_runs_one_after_the_other(host, function):
    """With the mean of single particles, of which a branch of each is its own."""
    model, guide, package = model_of(host, function), host.package.DVIGuide(), host.package
    options = {"propagation": "sampled", "num_particles": 50}
    elbo, bound = package.DeterministicELBO(**options), package.RenyiELBO(num_particles=3)
    TOTAL.zero_()
    one = package.DeterministicELBO(propagation="sampled")
    single = []
    for _ in range(0 if function is in_place else 50):  # whose sum grows with every run
        single.append(one.loss(model, guide, X, Y))
    found = elbo.loss(model, guide, X, Y)
    if single:
        assert abs(found - np.mean(single)) < 4 * np.std(single) * (2 / 50) ** 0.5
    assert math.isfinite(found)
    TOTAL.zero_()
    assert math.isfinite(bound.loss(model, guide, X, Y))
    few = {**options, "num_particles": 3}
    assert package.predict(model, guide, X, **few)["obs"].mean.shape == (4,)
    assert package.predict(model, guide, X, propagation="mean")["obs"].mean.shape == (4,)


def test_the_error_of_a_model_is_its_own(host):
    def wrong(f):
        return f @ torch.zeros(7)

    elbo = host.package.DeterministicELBO(propagation="sampled", num_particles=3)
    with pytest.raises(RuntimeError, match="size"):
        elbo.loss(model_of(host, wrong), host.package.DVIGuide(), X, Y)


def test_particles_fill_arrays_of_their_own(host):
    """What a model makes and changes in place, or a distribution of the host."""

    def filled(f):
        total, parts = torch.zeros(4), torch.empty(4)
        total += f
        for row in range(4):
            parts[row] = f[row] ** 2
        return total + parts

    def ordered(x, y=None):
        f = filled(x @ host.weight())
        cuts = torch.tensor([-1.0, 1.0])
        host.observe(x, host.dist.OrderedLogistic(f, cuts), y)

    y, guide = torch.tensor([0, 1, 2, 1]), host.package.DVIGuide()
    elbo = host.package.DeterministicELBO(propagation="sampled", num_particles=2000)
    found = [elbo.loss(ordered, guide, X, y) for _ in range(10)]
    one = host.package.DeterministicELBO(propagation="sampled")
    single = [one.loss(ordered, guide, X, y) for _ in range(150)]
    error = np.std(single) / len(single) ** 0.5
    assert abs(np.mean(found) - np.mean(single)) < 4 * error


def test_programs_that_fill_arrays_are_run_once_each_time(host):
    runs = []

    def filled(f):
        runs.append(f)
        total = torch.zeros(4)
        total += f
        return total

    guide = host.package.DVIGuide()
    model = model_of(host, filled)
    elbo = host.package.DeterministicELBO(propagation="sampled", num_particles=3)
    elbo.loss(model, guide, X, Y)
    runs.clear()
    elbo.loss(model, guide, X, Y)
    assert len(runs) == 1


def test_an_error_of_the_model_stays_what_it_is(host):
    calls = []

    def broken(f):
        calls.append(f)
        return f @ torch.ones(7) if len(calls) > 1 else f  # Pyro's own run is the first

    elbo = host.package.DeterministicELBO(propagation="sampled", num_particles=3)
    with pytest.raises(RuntimeError, match="size"):
        elbo.loss(model_of(host, broken), host.package.DVIGuide(), X, Y)


@pytest.mark.parametrize("objective", ["RenyiELBO", "DeterministicELBO"])
def test_a_program_is_validated_once_for_each_structure(host, objective):
    """By a run on samples, beside the one of all particles."""
    runs, counts = [], []
    model, guide = model_of(host, lambda f: runs.append(f) or f), host.package.DVIGuide()
    options = {} if objective == "RenyiELBO" else {"propagation": "sampled"}
    loss = getattr(host.package, objective)(num_particles=2, **options)
    loss.loss(model, guide, X, Y)
    for rows in (4, 3, 3):
        runs.clear()
        loss.loss(model, guide, X[:rows], Y[:rows])
        counts.append(len(runs))
    assert counts == [1, 2, 1]
    assert len(loss.runner.validate.validated_programs) == 2
    assert not copy.deepcopy(loss.runner.validate).validated_programs


COUNT = 10_000


def draws(fn):
    torch.manual_seed(0)
    return torch.vmap(lambda _: draw_by_gammas(fn), randomness="different")(torch.arange(COUNT))


@pytest.mark.parametrize("concentration", [0.3, 2.0])
def test_beta_draws_are_beta(concentration):
    one = dist.Beta(torch.tensor(concentration), 1.5)
    wide = one.expand([3]).to_event(1)
    found = draws(wide)
    assert found.shape == (COUNT, 3)
    for column in found.T.numpy():
        assert stats.kstest(column, stats.beta(concentration, 1.5).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(found.T.numpy()) - np.eye(3)).max() < 4.5 / COUNT**0.5


def test_dirichlet_draws_have_its_marginals_and_gradients():
    concentration = torch.tensor([0.5, 1.0, 2.5], requires_grad=True)
    found = draws(dist.Dirichlet(concentration))
    torch.testing.assert_close(found.sum(-1), torch.ones(COUNT))
    for column, own in zip(found.detach().T.numpy(), (0.5, 1.0, 2.5), strict=True):
        assert stats.kstest(column, stats.beta(own, 4 - own).cdf).pvalue > 1e-3
    (gradient,) = torch.autograd.grad(found[:, 0].mean(), concentration)
    exact = torch.tensor([1 / 4 - 0.5 / 16, -0.5 / 16, -0.5 / 16])
    torch.testing.assert_close(gradient, exact, atol=0.01, rtol=0.0)


def test_transforms_of_a_beta_and_other_distributions():
    twice = dist.TransformedDistribution(
        dist.Beta(torch.tensor(2.0), 3.0), [dist.transforms.AffineTransform(1.0, 2.0)]
    )
    column = draws(twice.expand([2]))[:, 1].numpy()
    assert stats.kstest((column - 1) / 2, stats.beta(2.0, 3.0).cdf).pvalue > 1e-3
    assert draw_by_gammas(dist.Gamma(2.0, 1.0)) is None


@pytest.mark.parametrize("posterior", ["Beta", "Dirichlet", "HalfCauchy"])
def test_particles_of_such_guide_sites(posterior):
    host = fresh("pyro")

    def fn(size):
        if posterior == "Dirichlet":
            return host.dist.Dirichlet(size * torch.ones(3))
        return host.dist.HalfCauchy(size) if posterior == "HalfCauchy" else dist.Beta(size, 2.0)

    def model(x, y=None):
        value = host.language.sample("scale", fn(torch.tensor(1.0))).reshape(-1)
        scale = value @ torch.arange(1.0, 1 + len(value))
        host.observe(x, host.dist.Normal(x.sum(-1) * scale, 1.0), y)

    def guide(x, y=None):
        size = host.language.param("size", torch.tensor(2.0), constraint=dist.constraints.positive)
        host.language.sample("scale", fn(size))

    x, y, package = host.x[:4], host.y[:4], host.package
    options = {"propagation": "sampled", "num_particles": 3}
    for objective in (package.DeterministicELBO(**options), package.RenyiELBO(num_particles=3)):
        host.language.clear_param_store()
        assert math.isfinite(objective.loss_and_grads(model, guide, x, y))
        (parameter,) = (part for _, part in host.language.get_param_store().named_parameters())
        assert float(parameter.grad) != 0
    prediction = package.predict(model, guide, x, **options)["obs"]
    assert (prediction.epistemic_variance > 1e-6).all()
