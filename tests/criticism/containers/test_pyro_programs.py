"""What only Pyro's programs have: modules, messengers, draws that torch cannot make at once."""

from unittest.mock import patch

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.contrib.easyguide import EasyGuide
from pyro.infer import autoguide
from pyro.infer.reparam import LocScaleReparam
from pyro.nn import PyroModule, PyroSample
from scipy import stats
from torch import nn

from pyro_moments import DVIGuide, UnsupportedMoments, fit, to_inference_data
from pyro_moments.draws import model as draws_of_model
from tests.criticism.containers.programs import X, Y
from tests.criticism.containers.test_densities import evidence

x, y = (torch.tensor(part, dtype=torch.float32) for part in (X, Y))


def model(x, y=None):
    weight = pyro.sample("weight", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        mean = pyro.deterministic("mean", x @ weight)
        pyro.sample("obs", dist.Normal(mean, scale), obs=y)


class Grouped(EasyGuide):
    def guide(self, x, y=None):
        group = self.group(match=".*")
        loc = pyro.param("centre", torch.zeros(group.event_shape))
        scale = pyro.param("spread", 0.1 * torch.ones(group.event_shape), dist.constraints.positive)
        group.sample("all", dist.Normal(loc, scale).to_event(1))


def listed(model):
    parts = autoguide.AutoGuideList(model)
    weights = poutine.block(model, expose=["weight"])
    parts.append(autoguide.AutoLowRankMultivariateNormal(weights, rank=1))
    parts.append(autoguide.AutoNormal(poutine.block(model, expose=["scale"])))
    return parts


def trained(model, guide, *data, steps=20):
    step = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), pyro.infer.Trace_ELBO())
    for _ in range(steps):
        step.step(*data)
    return guide


@pytest.mark.parametrize("make", [autoguide.AutoNormalMessenger, Grouped, listed])
def test_importance_weights_of_other_guides_have_the_evidence(make):
    guide = trained(model, make(model), x, y, steps=300)
    data = to_inference_data(model, guide, x, y, num_samples=2000, num_prior_samples=0)
    ratios = (data.sample_stats["lp"] - data.sample_stats["log_q"]).values[0]
    weights = np.exp(ratios - ratios.max())
    error = weights.std() / weights.mean() / len(weights) ** 0.5
    assert abs(np.log(weights.mean()) + ratios.max() - evidence()) < 3 * error < 0.3


def likelihood(name, predictor):
    logits = torch.stack([predictor, -predictor, 0 * predictor], -1)
    return {
        "binomial": lambda: dist.Binomial(5, logits=predictor),
        "categorical": lambda: dist.Categorical(logits=logits),
        "poisson": lambda: dist.Poisson(predictor.exp()),
        "beta": lambda: dist.Beta(2.0, predictor.exp()),
        "multinomial": lambda: dist.Multinomial(5, logits=logits),
        "ordered": lambda: dist.OrderedLogistic(predictor, torch.tensor([-1.0, 0.0, 1.0])),
    }[name]()


@pytest.mark.parametrize(
    "name", ["binomial", "categorical", "poisson", "beta", "multinomial", "ordered"]
)
def test_draws_at_once_are_those_of_one_after_the_other(name):
    def program(x, y=None):
        weight = pyro.sample("weight", dist.Normal(0.0, 0.3).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", likelihood(name, x @ weight), obs=y)

    def guide(x, y=None):
        pyro.sample("weight", dist.Normal(torch.tensor([0.5, -0.2, 0.1]), 0.01).to_event(1))

    few, observed, count = x[:4], program(x[:4]), 50
    options = {"num_samples": count, "num_prior_samples": 0}
    found = to_inference_data(program, guide, few, observed, **options)
    with patch.object(draws_of_model, "_at_once", side_effect=RuntimeError):
        alone = to_inference_data(program, guide, few, observed, **options)
    ours, theirs = (
        part.posterior_predictive["obs"].values[0].astype(float) for part in (found, alone)
    )
    error = np.sqrt((ours.var(0) + theirs.var(0)) / count) + 1e-9
    assert (abs(ours.mean(0) - theirs.mean(0)) < 4 * error).all()
    weights = found.posterior["weight"].values[0]
    densities = [
        likelihood(name, few @ torch.tensor(weight)).log_prob(observed) for weight in weights
    ]
    known = torch.stack(densities).numpy()
    np.testing.assert_allclose(found.log_likelihood["obs"].values[0], known, rtol=1e-4, atol=1e-5)


class Network(PyroModule):
    def __init__(self):
        super().__init__()
        self.first, self.norm = PyroModule[nn.Linear](3, 4), nn.BatchNorm1d(4)
        self.first.weight = PyroSample(dist.Normal(0.0, 1.0).expand([4, 3]).to_event(2))
        self.second = nn.Linear(4, 1)

    def forward(self, x, y=None):
        mean = self.second(torch.tanh(self.norm(self.first(x))))[..., 0]
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(mean, 0.5), obs=y)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_left_behind(training):
    network = Network()
    guide = trained(network, autoguide.AutoNormal(network), x, y)
    network.train(training)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    store = {name: value.clone() for name, value in pyro.get_param_store().items()}
    with poutine.trace() as outer:
        data = to_inference_data(network, guide, x, y, num_samples=30, predictions=(x[:5],))
    assert data.posterior["first.weight"].shape == (1, 30, 4, 3)
    assert data.predictions["obs"].shape == (1, 30, 5)
    assert [*data.constant_data] == ["x"]
    assert [*outer.trace.nodes] in ([], ["_INPUT", "_RETURN"])
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert store.keys() == {*pyro.get_param_store().keys()}
    for name, value in pyro.get_param_store().items():
        assert torch.equal(value, store[name]), name


def test_fits_by_guides_of_one_class_do_not_meet():
    """Pyro's store knows parameters by name: the last guide's are there."""
    fits = []
    for rows in (slice(0, 10), slice(10, 20)):
        pyro.clear_param_store()
        fits.append(fit(model, DVIGuide(), x[rows], y[rows], method="newton"))
    pyro.clear_param_store()
    wider = fit(columns, DVIGuide(), x, y, method="newton")
    for found in fits:
        data = to_inference_data(model, found, x, y, num_samples=400, num_prior_samples=0)
        mean = data.posterior["weight"].mean(("chain", "draw")).values
        loc, scale = (
            found.params[f"DVIGuide.{part}.weight"].numpy() for part in ("locs", "scales")
        )
        assert (abs(mean - loc) < 4 * scale / 20).all()
    kept = to_inference_data(columns, wider, x, y, num_samples=5)
    assert kept.posterior["weight"].shape == (1, 5, 4)


def columns(x, y=None):
    weight = pyro.sample("weight", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(x @ weight[:3] + weight[3], 0.5), obs=y)


def test_random_numbers_go_on():
    guide = trained(model, autoguide.AutoNormal(model), x, y)
    seeds = []
    for seed in (1, 1, 2):
        pyro.set_rng_seed(seed)
        pair = [to_inference_data(model, guide, x, y, num_samples=5) for _ in range(2)]
        seeds.append([part.posterior["weight"].values for part in pair])
        assert not np.array_equal(*seeds[-1])
        draws = [part.posterior_predictive["obs"].values for part in pair]
        assert not np.array_equal(*draws)
    np.testing.assert_array_equal(seeds[0], seeds[1])
    assert not np.array_equal(seeds[0], seeds[2])


def test_errors_of_the_model_are_its_own():
    guide = trained(model, autoguide.AutoNormal(model), x, y)
    with pytest.raises(RuntimeError, match="size mismatch"):
        to_inference_data(model, guide, x, y, predictions=(x[:, :2],))
    outside = torch.full((len(x),), -1.0)

    def positive(x, y=None):
        weight = pyro.sample("weight", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        pyro.sample("scale", dist.HalfNormal(1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Exponential((x @ weight).exp()), obs=y)

    with pytest.raises(UnsupportedMoments, match=r"Exponential does not take, the first -1.0"):
        to_inference_data(positive, guide, x, outside)


def test_values_that_decide_what_is_run():
    def program(x, y=None):
        weight = pyro.sample("weight", dist.Normal(0.0, 1.0))
        mean = x[:, 0] * weight if weight > 0 else 3.0 * x[:, 1]
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(mean, 1.0), obs=y)

    def guide(x, y=None):
        pyro.sample("weight", dist.Normal(0.0, 1.0))

    data = to_inference_data(program, guide, x, y, num_samples=40)
    weight = data.posterior["weight"].values[0][:, None]
    mean = np.where(weight > 0, weight * X[:, 0], 3 * X[:, 1])
    known = stats.norm(mean, 1).logpdf(Y)
    np.testing.assert_allclose(data.log_likelihood["obs"].values[0], known, rtol=1e-4)


def test_reparameterised_sites_are_deterministic():
    def program(x, y=None):
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("columns", 3):
            weight = pyro.sample("weight", dist.Normal(loc, 0.5))
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(x @ weight, 0.5), obs=y)

    moved = poutine.reparam(program, {"weight": LocScaleReparam(0.0)})
    guide = trained(moved, autoguide.AutoNormal(moved), x, y)
    data = to_inference_data(moved, guide, x, y, num_samples=30, num_prior_samples=30)
    for group in (data.posterior, data.prior):
        loc, moved_back = group["loc"].values[..., None], group["weight_decentered"].values
        np.testing.assert_allclose(group["weight"], loc + 0.5 * moved_back, rtol=1e-4, atol=1e-5)
    assert data.posterior["weight"].dims == ("chain", "draw", "columns")
    assert [*data.log_likelihood] == ["obs"]
