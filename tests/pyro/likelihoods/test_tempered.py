"""Means of powers of likelihoods against quadrature over the host's own densities."""

import numpy as np
import pyro.distributions as dist
import pytest
import torch

from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.values.propagation import Propagation
from pyro_moments import MomentTensor, UnsupportedMoments
from pyro_moments.likelihoods.expected import evaluate, tempered, tempered_jointly
from tests.cases.hosts.tempered import DEVIATIONS, INPUTS, MEANS, PAIRS, data
from tests.oracles import quadrature as oracles
from tests.pyro.likelihoods.cases import CASES, CLASSES, COUNTS
from tests.pyro.likelihoods.test_likelihoods import close, latent, points

pytestmark = pytest.mark.usefixtures("double_precision")

DATA = data(dist, torch.as_tensor)
POWERS = (0.5, 1.0)


def log_mean(values, weights, power):
    """(1/a) log of the weighted mean of exponentials over the leading axis."""
    return torch.logsumexp(power * values + weights.log(), 0) / power


@pytest.mark.parametrize("name", CASES)
def test_every_likelihood(name):
    make, value = CASES[name]
    f, weights = points()
    certain = make(f) if name != "transformed" else dist.Normal(f, 2.0)
    logs = certain.log_prob(value)
    for power in POWERS:
        close(tempered("obs", make(latent()), value, power), log_mean(logs, weights, power))
    expected = evaluate("obs", make(latent()), value)
    slope = 0.5 * ((weights * logs**2).sum(0) - (weights * logs).sum(0) ** 2)
    close(tempered("obs", make(latent()), value, 1e-6), expected + 1e-6 * slope)
    close(tempered("obs", make(latent()), value, 0.0), expected)


def site(name, propagation=None):
    mean, deviation = (torch.as_tensor(table[name]) for table in (MEANS, DEVIATIONS))
    events = 2 if name == "w" else 0
    value = site_value(name, mean, deviation**2, propagation or Propagation(), event_dim=events)
    return MomentTensor(value)


def drawn(names, nodes):
    """Points of the latent sites, [points, *shape] each, with weights."""
    sizes = [MEANS[name].size if name == "w" else 1 for name in names]
    z, weights = map(torch.as_tensor, oracles.hermite_grid(nodes, sum(sizes)))
    found = []
    for name, share in zip(names, z.split(sizes, 1), strict=True):
        share = share.reshape(-1, *((2, 2) if name == "w" else (1, 1)))
        found.append(torch.as_tensor(MEANS[name]) + torch.as_tensor(DEVIATIONS[name]) * share)
    return found, weights


def summed(sites, axes):
    """Log densities of data, [points, *data]."""
    total = 0.0
    for fn, value, scale in sites:
        terms = scale * fn.log_prob(value)
        inner = [axis for axis in range(1 - terms.dim(), 0) if axis not in axes]
        total = total + (terms.sum(inner) if inner else terms)
    return total


@pytest.mark.parametrize("name", DATA)
def test_data_of_several_observations(name):
    row = DATA[name]
    values, weights = drawn(row.latent, 60 if len(row.latent) == 2 else 22)
    logs = summed(row.sites(*values), row.axes)
    sites = [("y", *parts) for parts in row.sites(*map(site, row.latent))]
    tolerance = 1e-2 if name == "independent event" else 1e-5  # of the oracle, which has kinks
    for power in POWERS:
        expected = log_mean(logs, weights[:, None], power)
        actual = tempered_jointly(sites, power, row.axes)
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=1e-9)
    limit = sum((s * evaluate(n, fn, v)).reshape(4, -1).sum(-1) for n, fn, v, s in sites)
    close(tempered_jointly(sites, 0.0, row.axes), limit)
    close(tempered_jointly(sites, 1e-8, row.axes), limit)


def test_a_site_alone_is_one_of_data():
    """The batch shape of the distribution, whatever axes it has."""
    row = DATA["event"]
    ((fn, value, _),) = row.sites(site("w"))
    close(tempered("y", fn, value, 0.5), tempered_jointly([("y", fn, value, 1.0)], 0.5, (-1,)))
    wide = fn.expand([2, 4])
    both = tempered("y", wide, value.expand(2, 4, 2), 0.5)
    close(both, tempered("y", fn, value, 0.5).expand(2, 4))


def test_data_without_axes_are_one_datum():
    f = latent()
    value = torch.tensor([0.1, 0.4, -0.2])
    sites = [("y", dist.Normal(f, 0.5), value, 1.0)]
    close(tempered_jointly(sites, 0.5, ()), tempered("y", dist.Normal(f, 0.5), value, 0.5).sum())


def test_scales_are_inside_the_power():
    f, weights = points()
    logs = dist.Poisson(f.exp()).log_prob(COUNTS)
    scale = torch.tensor([0.5, 2.0, 0.0])
    sites = [("y", dist.Poisson(torch.exp(latent())), COUNTS, scale)]
    close(tempered_jointly(sites, 0.5, (-1,)), log_mean(scale * logs, weights, 0.5))


def test_masks_exclude_what_is_missing():
    fn, value = CASES["Normal, nonlinear"]
    mask = torch.tensor([True, False, True])
    plain = tempered("y", fn(latent()), value, 0.5)
    close(tempered("y", fn(latent()).mask(mask), value, 0.5), plain * mask)
    close(tempered("y", fn(latent()).mask(False), value, 0.5), plain * 0)
    missing = torch.where(mask, value, torch.nan)
    linear = dist.Normal(latent(), 0.5, validate_args=False).mask(mask)
    alone = tempered("y", dist.Normal(latent(), 0.5), value, 0.5)
    close(tempered("y", linear, missing, 0.5), alone * mask)


def test_certain_sites_have_the_hosts_density():
    fn, value = dist.Gamma(torch.tensor([1.0, 2.0]), 3.0), torch.tensor([0.4, 0.2])
    for alpha in (0.0, 0.3, 1.0):
        close(tempered("y", fn, value, alpha), fn.log_prob(value))
    empty = dist.Normal(latent()[:0], 1.0)
    assert tempered("y", empty, torch.zeros(0), 0.5).shape == (0,)


def test_random_factors():
    f, weights = points()
    for make in (lambda f: 2 * f, torch.sigmoid):
        actual = tempered("factor", dist.Unit(make(latent())), torch.empty(3, 0), 0.5)
        close(actual, log_mean(make(f), weights, 0.5))


def heads(propagation):
    return torch.as_tensor(INPUTS) @ site("w", propagation) @ torch.ones(2, 2)


def test_diagonal_propagation_takes_features_as_independent():
    fn = dist.Bernoulli(logits=heads(Propagation(covariance="diagonal")))
    value = torch.as_tensor(PAIRS > 0, dtype=torch.double)
    together = tempered("y", fn.to_event(1), value, 0.5)
    close(together, tempered("y", fn, value, 0.5).sum(-1))


def test_one_location_of_several_observations_is_one_under_any_propagation():
    row = DATA["one location"]
    found = [
        tempered_jointly(
            [("y", *parts) for parts in row.sites(site("a", Propagation(covariance=covariance)))],
            0.5,
            row.axes,
        )
        for covariance in ("full", "diagonal")
    ]
    close(*found)


REFUSED = {
    "features of classes": (
        lambda out, y: [("y", dist.Bernoulli(logits=out).to_event(1), (y > 0).double(), 1.0)],
        r"elements of site 'y'[\s\S]*Bernoulli[\s\S]*covariance='diagonal'",
    ),
    "random scales": (
        lambda out, y: [("y", dist.Normal(out, torch.exp(out)).to_event(1), y, 1.0)],
        r"'y' is a Normal with a random scale[\s\S]*propagation='sampled'",
    ),
    "functions of locations": (
        lambda out, y: [("y", dist.Normal(torch.relu(out), 1.0).to_event(1), y, 1.0)],
        r"site 'y' is a function of a Gaussian[\s\S]*linear map",
    ),
    "sites of several kinds": (
        lambda out, y: [
            ("y", dist.Normal(out[:, 0], 1.0), y[:, 0], 1.0),
            ("z", dist.Poisson(torch.exp(out[:, 1])), (y[:, 1] > 0).double(), 1.0),
        ],
        r"the sites 'y', 'z'[\s\S]*'z' is a Poisson[\s\S]*sampled",
    ),
    "data in another order": (
        lambda out, y: [
            ("y", dist.Normal(out[:, 0], 1.0), y[:, 0], 1.0),
            ("z", dist.Normal(out.flip(0)[:, 0], 1.0), y[:, 1], 1.0),
        ],
        r"the sites 'y', 'z'[\s\S]*",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_dependent_elements_without_a_joint_density_are_refused(name):
    make, message = REFUSED[name]
    sites = make(heads(Propagation()), torch.as_tensor(PAIRS))
    with pytest.raises(UnsupportedMoments, match=message):
        tempered_jointly(sites, 0.5, (-1,))
    assert tempered_jointly(sites, 0.0, (-1,)).isfinite().all()


def test_positions_whose_covariance_is_not_known_are_refused():
    inputs = torch.as_tensor(np.random.default_rng(0).normal(size=(4, 3, 2)))
    sites = [("y", dist.Normal((inputs @ site("w"))[..., 0], 1.0), torch.zeros(4, 3), 1.0)]
    with pytest.raises(UnsupportedMoments, match=r"elements \(4, 3\) of 'y' along the axes \(-1,"):
        tempered_jointly(sites, 0.5, (-2,))
    assert tempered_jointly(sites, 0.5, (-2, -1)).shape == (4, 3)


@pytest.mark.parametrize("alpha", [-0.1, 1.5, float("nan")])
def test_powers_out_of_range_are_refused(alpha):
    with pytest.raises(ValueError, match="not between 0"):
        tempered("y", dist.Normal(latent(), 1.0), torch.zeros(3), alpha)


def test_vectors_without_a_rule_are_refused():
    logits = MomentTensor(site_value("f", torch.zeros(2, 3), torch.ones(2, 3), Propagation()))
    fn = dist.LowRankMultivariateNormal(logits, torch.ones(3, 1), torch.ones(3))
    with pytest.raises(UnsupportedMoments, match="LowRankMultivariateNormal"):
        tempered("y", fn, torch.ones(2, 3), 0.5)


def test_drawn_classes_are_those_of_the_expected_log_density():
    """The same draws: for small powers the same number."""
    flow = Propagation(categorical="sample", categorical_draws=5)
    logits = MomentTensor(site_value("f", torch.zeros(3, 3), torch.ones(3, 3), flow))
    fn = dist.Categorical(logits=logits)
    torch.manual_seed(0)
    expected = evaluate("y", fn, CLASSES)
    torch.manual_seed(0)
    torch.testing.assert_close(tempered("y", fn, CLASSES, 1e-6), expected, rtol=1e-4, atol=0)
    assert (tempered("y", fn, CLASSES, 1.0) < 0).all()


@pytest.mark.parametrize("name", ["Normal, nonlinear", "Poisson, exp", "Laplace", "Gumbel"])
def test_single_precision(name):
    make, value = CASES[name]
    f = latent(mean=latent().value.mean.float(), variance=latent().value.variance.float())
    for power in (1e-6, 0.5, 1.0):
        actual = tempered("obs", make(f), value.float(), power)
        expected = tempered("obs", make(latent()), value, power)
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite(dtype):
    mean = torch.tensor([-0.8, 0.3, 1.1], dtype=dtype, requires_grad=True)
    variance = torch.tensor([0.0, 0.9, 1e4], dtype=dtype, requires_grad=True)
    fn = dist.Normal(latent(mean=mean, variance=variance), torch.tensor(1e-3, dtype=dtype))
    for power in (1e-6, 0.5, 1.0):
        total = tempered("obs", fn, torch.zeros(3, dtype=dtype), power).sum()
        assert all(g.isfinite().all() for g in torch.autograd.grad(total, [mean, variance]))
