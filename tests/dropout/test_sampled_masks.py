"""Masks of a guide by dropout that are drawn: one for each row, also where rows are mixed."""

import itertools
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from moment_inference.optimisation.storage.files import StoredFileError, read
from moment_inference.optimisation.storage.trainings import settings_of
from tests.fitting.models import fresh, started
from tests.propagation.oracle import losses, placed
from tests.response.models import doubles

P, NOISE, DRAWS, TIMES = 0.3, 0.6, 400, 15
X = np.random.default_rng(2).normal(size=(2, 2))
Y = np.array([0.4, -0.9])
M = np.random.default_rng(3).normal(size=(2, 2))
SHAPES = {"bernoulli": (2, 2, 1), "dropconnect": (2, 2, 2)}  # of the masks of both rows


def model_of(host, function):
    xp = torch if host.name == "pyro" else jnp

    def model(x, y=None):
        w = host.language.sample("w", host.dist.Normal(0.0, 1.0).expand((2, 2)).to_event(2))
        f = function(xp, x, w)
        with host.language.plate("data", 2):
            return host.language.sample("obs", host.dist.Normal(f, NOISE), obs=y)

    return model


def guide_of(host, noise):
    name = "w_auto_loc" if host.name == "numpyro" else "MCDropoutGuide.locs.w"
    with doubles(host):
        return host.package.MCDropoutGuide(p=P, noise=noise), {name: host.array(M)}


def apart(xp, x, w):
    return xp.tanh(x @ w)[:, 0]


def pooled(xp, x, w):
    h = xp.tanh(x @ w)
    return (h + h.mean(0))[:, 0]


def pairs(xp, x, w):
    h = xp.tanh(w.T @ x.T).T
    return (h @ h.T @ h)[:, 0]


def tied(xp, x, w):
    return (xp.tanh(xp.einsum("io,ni->no", w, x)) @ w.T)[:, 0]


def recurrent(xp, x, w):
    return xp.tanh(xp.tanh(x @ w) @ w)[:, 0]


# What each is of the rows of its map, and of other rows mapped by the same weights and back.
FUNCTIONS = {
    apart: lambda h, there, back: h[:, 0],
    pooled: lambda h, there, back: (h + h.mean(0))[:, 0],
    pairs: lambda h, there, back: (h @ h.T @ h)[:, 0],
    tied: lambda h, there, back: back(h)[:, 0],
    recurrent: lambda h, there, back: np.tanh(there(h))[:, 0],
}


def over_masks(function, noise):
    """Every outcome of all masks: its chance, and the locations of both rows."""
    chances, locations = [], []
    shape = SHAPES[noise]
    for bits in itertools.product((0, 1), repeat=int(np.prod(shape))):
        weights = M * np.reshape(bits, shape) / (1 - P)
        there = partial(np.einsum, "nio,ni->no", weights)
        back = partial(np.einsum, "nio,no->ni", weights)
        chances.append((1 - P) ** sum(bits) * P ** (len(bits) - sum(bits)))
        locations.append(FUNCTIONS[function](np.tanh(there(X)), there, back))
    return np.array(chances), np.array(locations)


def loss_over_masks(function, noise):
    """The loss, and the variance of that of one draw of all masks."""
    chances, locations = over_masks(function, noise)
    logs = -0.5 * ((Y - locations) / NOISE) ** 2 - np.log(NOISE * (2 * np.pi) ** 0.5)
    mean = chances @ logs.sum(1)
    return (M**2).sum() / (2 * (1 - P)) - mean, chances @ (logs.sum(1) - mean) ** 2


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("function", [apart, pooled])
def test_moments_of_few_certain_inputs_are_exact(host, function, covariance):
    guide, params = guide_of(host, "bernoulli")
    objective = host.package.DeterministicELBO(covariance=covariance)
    model = model_of(host, function)
    (found,) = losses(host, objective, model, {}, X, Y, guide=guide, params=params)
    assert found == pytest.approx(loss_over_masks(function, "bernoulli")[0], rel=1e-9)


@pytest.mark.parametrize("noise", SHAPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_row_has_masks_of_its_own(host, function, noise):
    """The ELBO over all masks, within 4.5 standard errors of draws."""
    expected, spread = loss_over_masks(function, noise)
    guide, params = guide_of(host, noise)
    objective = host.package.DeterministicELBO(propagation="sampled", num_particles=DRAWS)
    model = model_of(host, function)
    found = losses(host, objective, model, {}, X, Y, count=TIMES, guide=guide, params=params)
    assert abs(found.mean() - expected) < 4.5 * (spread / DRAWS / TIMES) ** 0.5


@pytest.mark.parametrize("noise", SHAPES)
def test_predictions_of_rows_that_are_mixed(host, noise):
    chances, locations = over_masks(pooled, noise)
    guide, params = guide_of(host, noise)
    model, options = model_of(host, pooled), {"propagation": "sampled", "num_particles": 4000}
    with doubles(host):
        x = host.array(X)
        given = placed(host, model, guide, params, x, host.array(Y))
        if host.name == "numpyro":
            options["rng_key"] = jax.random.key(1)
        with torch.no_grad():
            found = host.package.predict(model, guide, *given, x, **options)["obs"]
    mean = chances @ locations
    variance = chances @ (locations - mean) ** 2
    fourth = chances @ (locations - mean) ** 4
    assert (np.abs(np.asarray(found.mean) - mean) < 4.5 * (variance / 4000) ** 0.5).all()
    error = ((fourth - variance**2) / 4000) ** 0.5
    assert (np.abs(np.asarray(found.epistemic_variance) - variance) < 4.5 * error).all()


REFUSED = {
    "several axes of rows": lambda xp, x, w: (x[None, :, None, :] @ w)[0, :, 0, 0],
    "other than a transpose": lambda xp, x, w: (x @ w)[:, 0] + w[0, 0],
    "which are not the data": lambda xp, x, w: (x[:1] @ w)[0],
    "with 1 row.s. of inputs, and with 2 before": lambda xp, x, w: (x @ w)[:, 0] + (x[:1] @ w)[0],
}


@pytest.mark.parametrize("cause", REFUSED)
def test_rows_that_are_not_known_are_refused(host, cause):
    guide, params = guide_of(host, "bernoulli")
    objective = host.package.DeterministicELBO(propagation="sampled", num_particles=2)
    model = model_of(host, REFUSED[cause])
    with pytest.raises(UnsupportedMoments, match=rf"'w' .*{cause}") as found:
        losses(host, objective, model, {}, X, Y, guide=guide, params=params)
    assert found.value.sites == ("w",)
    assert "name the site in sample_sites" in found.value.remedy


def saved(host, path, **options):
    guide, data = host.package.MCDropoutGuide(**options), (host.x, host.y)
    given = started(host, host.regression, guide, *data)
    host.package.save(path, host.regression, guide, *given, *data)
    fresh(host.name)


def test_another_posterior_is_refused(host, tmp_path):
    path = tmp_path / "trained.safetensors"
    saved(host, path, p=0.1)
    others = {
        "p of the guide was 0.1, and is 0.5 here": {"p": 0.5},
        "p of the guide was 0.1, and is {'weight': 0.1} here": {"p": {"weight": 0.1}},
        "noise of the guide was 'bernoulli', and is 'gaussian' here": {"noise": "gaussian"},
    }
    for cause, options in others.items():
        with pytest.raises(StoredFileError) as raised:
            host.package.load(path, host.regression, host.package.MCDropoutGuide(**options), host.x)
        assert cause in str(raised.value)
        assert "p=0.1" in raised.value.remedy
    same = host.package.MCDropoutGuide(p=0.1)
    assert host.package.load(path, host.regression, same, host.x).guide is same


def test_where_probabilities_are_learnt_they_are_parameters(host, tmp_path):
    """They begin elsewhere, and come from the file."""
    path = tmp_path / "trained.safetensors"
    saved(host, path, p=0.1, learn_p=True)
    guide = host.package.MCDropoutGuide(p=0.4, learn_p=True)
    fit = host.package.load(path, host.regression, guide, host.x)
    (p,) = (value for name, value in fit.params.items() if "probs" in name or name.endswith("_p"))
    assert float(p) == pytest.approx(0.1)
    cooler = host.package.MCDropoutGuide(learn_p=True, temperature=0.2)
    with pytest.raises(StoredFileError, match=r"temperature of the guide was 0\.1"):
        host.package.load(path, host.regression, cooler, host.x)


def test_settings_are_those_of_all_parts(host):
    dropout = host.package.MCDropoutGuide(p={"w": 0.2}, others="mean_field")
    settings = {"p": {"w": 0.2}, "noise": "bernoulli", "others": "mean_field", "learn_p": False}
    assert settings_of(dropout) == settings
    assert json.loads(json.dumps(settings)) == settings
    assert settings_of([host.package.DVIGuide(), dropout]) == {"1": settings}
    assert settings_of(host.package.DVIGuide()) == {}


def test_a_file_says_what_it_is_of(host, tmp_path):
    path = tmp_path / "trained.safetensors"
    saved(host, path, p=0.1)
    assert read(path)[0]["posterior"]["p"] == 0.1
