"""What users do first, and where they slip."""

import functools

import jax
import numpy as np
import pyro
import pytest
import torch
from flax import linen
from numpyro.contrib.module import flax_module
from torch.utils.data import BatchSampler, DataLoader, Subset, SubsetRandomSampler, TensorDataset

from tests.checks.marks import IN_PYRO
from tests.fitting.models import ROWS, X, Y, fresh


def counts(host):
    def model(x, y=None):
        rate = host.array(np.float32(1.0)) * (0.3 * x @ host.weight())
        family = host.dist.Poisson(np.e**rate) if host.name == "numpyro" else None
        family = family or host.dist.Poisson(torch.exp(rate))
        return host.observe(x, family, y)

    return model


def test_a_model_of_counts_is_loaded_with_inputs_alone(host, tmp_path):
    """What was observed is discrete, and open now."""
    model, path = counts(host), tmp_path / "trained"
    y = host.array(np.round(np.abs(Y)).astype(np.float32))
    if host.name == "numpyro":
        y = y.astype(int)
    fit = host.fit(model, host.x, y, steps=5)
    host.package.save(path, model, fit.guide, *host.given(fit.params), host.x, y)
    fresh(host.name)
    loaded = host.package.load(path, model, host.package.DVIGuide(), host.x)
    np.testing.assert_array_equal(host.location(loaded), host.location(fit))
    if host.name == "pyro":
        assert (host.package.predict(model, loaded.guide, host.x)["obs"].mean > 0).all()


def test_restarts_of_the_host_s_own_guide():
    host = fresh("pyro")
    guide = pyro.infer.autoguide.AutoNormal(host.regression)
    fit = host.package.fit(host.regression, guide, host.x, host.y, restarts=2, steps=3)
    assert fit.guide is guide
    assert guide.median()["weight"].shape == (3,)


HALF = [*range(ROWS // 2)]
OWN = torch.Generator()  # so that the guide begins where it would without a loader
LOADERS = {
    "a subset": lambda data: DataLoader(Subset(data, HALF), 24, generator=OWN),
    "a sampler": lambda data: DataLoader(
        data, 24, sampler=SubsetRandomSampler(HALF, OWN), generator=OWN
    ),
    "a list of rows": lambda data: DataLoader(data, 24, sampler=HALF, generator=OWN),
    "a sampler of batches": lambda data: DataLoader(
        data, batch_sampler=BatchSampler(SubsetRandomSampler(HALF, OWN), 24, False), generator=OWN
    ),
}


@pytest.mark.parametrize(
    ("host", "name"),
    [*(("pyro", name) for name in LOADERS), ("numpyro", "a subset")],
    indirect=["host"],
)
def test_half_of_the_rows_count_half(host, name):
    loader = LOADERS[name](TensorDataset(torch.tensor(X), torch.tensor(Y)))
    frozen = {"learning_rate": 0.0, "steps": 2}
    fit = host.fit(host.regression, loader, **frozen)
    fresh(host.name)
    alone = host.fit(host.regression, host.x[: ROWS // 2], host.y[: ROWS // 2], **frozen)
    assert np.mean(fit.losses) == pytest.approx(alone.loss, rel=1e-5)


@IN_PYRO
def test_a_constant_by_name_is_no_mini_batch(host):
    def model(x, y=None, mean=None):
        weight = host.weight() + mean[:3]
        return host.observe(x, host.dist.Normal(x @ weight, 0.3), y)

    parts = [dict(zip("xy", host.rows(start, start + 32), strict=True)) for start in (0, 32, 64)]
    mean = host.array(np.zeros(ROWS, np.float32))
    frozen = {"learning_rate": 0.0, "steps": 3}
    fit = host.fit(model, iter(parts), mean=mean, rows=ROWS, **frozen)
    fresh(host.name)
    whole = host.fit(model, host.x, host.y, mean=mean, **frozen)
    assert np.mean(fit.losses) == pytest.approx(whole.loss, rel=1e-5)


def test_empty_loaders_are_refused(host):
    data = TensorDataset(torch.tensor(X), torch.tensor(Y))
    for empty in (iter([]), DataLoader(data, 200, drop_last=True)):
        with pytest.raises(ValueError, match="the loader gives no mini-batches"):
            host.fit(host.regression, empty, steps=2)


def test_forgotten_observations_are_refused(host):
    with pytest.raises(ValueError, match="observes nothing of the mini-batch"):
        host.fit(host.regression, host.x, batch_size=32)


def test_a_training_that_diverges_stops(host):
    fit = host.fit(host.regression, host.x, host.y, learning_rate=1e25, steps=400)
    assert not fit.converged
    assert fit.reason.startswith("stopped: ")
    assert fit.steps < 400


SLIPS = {
    "steps": ({"steps": 1e2}, TypeError, "steps must be an integer, got 100.0"),
    "held_out": (
        {"held_out": DataLoader(TensorDataset(torch.tensor(X)))},
        ValueError,
        "held_out takes the model's arguments",
    ),
    "checkpoint": ({"checkpoint": "nowhere/file"}, FileNotFoundError, "there is no folder nowhere"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_slips_are_explained(host, name):
    options, kind, message = SLIPS[name]
    with pytest.raises(kind, match=message):
        host.fit(host.regression, host.x, host.y, **options)


@IN_PYRO
def test_a_checkpoint_of_another_prior_or_objective_is_refused(host, tmp_path):
    def narrow(x, y):
        prior = host.dist.Normal(0.0, 0.01).expand([3]).to_event(1)
        weight = host.language.sample("weight", prior)
        host.observe(x, host.dist.Normal(x @ weight, 0.3), y)

    data, options = (host.x, host.y), {"steps": 4, "checkpoint": tmp_path / "checkpoint"}
    host.fit(host.regression, *data, **options)
    diagonal = host.package.DeterministicELBO(covariance="diagonal")
    for model, changes in ((narrow, {}), (host.regression, {"objective": diagonal})):
        fresh(host.name)
        with pytest.raises(
            host.package.StoredFileError, match=r"another (model: scale|fit: its objective)"
        ):
            host.fit(model, *data, **options, **changes)


class Normalised(linen.Module):
    """Batch normalisation, whose running averages are no parameters."""

    @linen.compact
    def __call__(self, x, train):
        return linen.BatchNorm(use_running_average=not train)(x)


def test_running_averages_are_kept_beside_the_parameters(tmp_path):
    """So that predictions, held-out data and files have them."""
    host, path = fresh("numpyro"), tmp_path / "trained"

    def model(x, y=None, train=True):
        options = {"mutable": ["batch_stats"], "input_shape": (1, 3), "train": True}
        network = flax_module("network", Normalised(), **options)
        loc = network(x, train=train) @ host.weight()
        return host.observe(x, host.dist.Normal(loc, 0.3), y)

    held_out = {"x": X, "y": Y, "train": False}
    shifted = X + 3
    fit = host.fit(model, shifted, Y, steps=60, batch_size=32, held_out=held_out, every=30)
    mean = fit.params["network$state"]["batch_stats"]["BatchNorm_0"]["mean"]
    assert (mean > 1).all()
    assert np.isfinite(list(fit.held_out.values())).all()
    host.package.save(path, model, fit.guide, fit.params, shifted, Y)
    loaded = host.package.load(path, model, host.package.DVIGuide(), shifted)
    assert jax.tree.all(jax.tree.map(np.array_equal, fit.params, loaded.params))


@pytest.mark.parametrize("names", [("loc", "scale"), ("scales", "locs"), ("net.loc", "net.scale")])
def test_sites_may_have_the_names_of_parameters(host, names):
    """Newton's method pairs locations with scales by the names of the guide's parameters."""

    def model(names, y):
        loc = host.language.sample(names[0], host.dist.Normal(0.0, 2.0))
        scale = host.language.sample(names[1], host.dist.LogNormal(0.0, 1.0))
        host.observe(y, host.dist.Normal(loc, scale), y)

    losses = [
        host.fit(functools.partial(model, sites), host.y, method="newton").loss
        for sites in (names, ("first", "second"))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
