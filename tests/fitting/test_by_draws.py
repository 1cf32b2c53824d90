"""The check at the end of a fit: what the trained loss is by draws of the guide."""

from __future__ import annotations

import math
import random
import warnings

import jax
import numpy as np
import pyro
import pyro.infer.autoguide as pyro_guides
import pytest
import torch

from moment_calculus.criticism.diagnosis.by_draws import loss_by_draws
from moment_calculus.criticism.diagnosis.findings import Verdict
from moment_calculus.objectives.by_draws import jackknife
from moment_calculus.optimisation.outcome import ByDraws
from moment_calculus.refusals.errors import LossByDrawsWarning
from tests.fitting.models import HOSTS, fresh

rng = np.random.default_rng(4)
ROWS, WIDTH = 120, 5
INPUTS = rng.normal(size=(ROWS, 2)).astype(np.float32)
CURVE = np.sin(2 * INPUTS[:, 0]) + INPUTS[:, 1]
WIDE = rng.normal(size=(ROWS, 10)).astype(np.float32)
CLASSES = np.argmax(np.maximum(WIDE @ rng.normal(size=(10, 8)), 0) @ rng.normal(size=(8, 3)), 1)
COUNTS = rng.poisson(np.exp(0.5 * CURVE)).astype(np.float32)
FLAGS = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-2 * CURVE))).astype(np.float32)


@pytest.fixture(params=HOSTS)
def host(request):
    return fresh(request.param)


@pytest.fixture
def certain():
    """Let every warning of the check fail a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", LossByDrawsWarning)
        yield


def network(host, family, outputs=(), layers=1, width=WIDTH, *, scale=1.0, unit="tanh"):
    """A network, and a likelihood of its outputs."""
    function = getattr(torch if host.name == "pyro" else jax.nn, unit)

    def model(x, y=None):
        value = x
        for layer in range(layers):
            value = function(value @ weight(f"w{layer}", value.shape[-1], width))
        out = value @ weight("out", width, *(outputs or (1,)))
        with host.language.plate("rows", len(x)):
            host.language.sample("obs", family(out if outputs else out[:, 0]), obs=y)

    def weight(name, *shape):
        prior = host.dist.Normal(0.0, scale / shape[0] ** 0.5).expand(shape).to_event(2)
        return host.language.sample(name, prior)

    return model


def classifier(host):
    family = lambda logits: host.dist.Categorical(logits=logits)  # noqa: E731
    return network(host, family, (3,), width=16, scale=4.0, unit="relu")


def trained(host, model, x, y, **options):
    data = host.array(x), host.array(y)
    return host.fit(model, *data, method="lbfgs", progress_bar=False, **options)


def contradicted(host, objective):
    """A classifier by a rule that is wrong at its optimum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", LossByDrawsWarning)
        with pytest.raises(LossByDrawsWarning, match=r'categorical="points"'):
            trained(host, classifier(host), WIDE, CLASSES, objective=objective)
        return trained(host, classifier(host), WIDE, CLASSES, objective=objective, by_draws=False)


def test_a_wrong_rule_for_classes_is_contradicted(host):
    """The second-order expansion of the source papers, whose optimum is where it is wrong."""
    objective = host.package.DeterministicELBO(categorical="delta")
    fit = contradicted(host, objective)
    assert math.isnan(fit.by_draws.value)
    assert "by_draws=False" in fit.by_draws.note


def test_the_warning_is_at_the_line_of_the_user(host):
    objective = host.package.DeterministicELBO(categorical="delta")
    data = host.array(WIDE), host.array(CLASSES)
    with pytest.warns(LossByDrawsWarning) as caught:
        fit = host.package.fit(
            classifier(host), host.package.DVIGuide(), *data, objective=objective, method="lbfgs"
        )
    (one,) = (each for each in caught if each.category is LossByDrawsWarning)
    assert one.filename == __file__
    assert fit.by_draws.is_off
    finding = loss_by_draws(fit.by_draws)
    assert finding.verdict is Verdict.BAD
    assert 'propagation="sampled"' in finding.remedy


FAMILIES = {"poisson": COUNTS, "bernoulli": FLAGS}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("certain")
def test_networks_with_full_covariance_are_confirmed(host, family):
    likelihoods = {
        "poisson": lambda rate: host.dist.Poisson(
            (torch.exp if host.name == "pyro" else jax.numpy.exp)(rate)
        ),
        "bernoulli": lambda logit: host.dist.Bernoulli(logits=logit),
    }
    fit = trained(host, network(host, likelihoods[family]), INPUTS, FAMILIES[family])
    found = fit.by_draws
    assert found.loss == fit.loss
    assert not found.is_off
    assert found.value == pytest.approx(found.loss, abs=4 * found.standard_error + 0.01 * fit.loss)
    assert found.standard_error < 0.01 * abs(fit.loss)


@pytest.mark.parametrize("alpha", [None, 0.5, 1.0])
def test_of_a_linear_regression_draws_give_the_exact_loss(host, alpha):
    """Moments are exact there, also those of powers."""
    package = host.package
    objective = package.DeterministicELBO() if alpha is None else package.BBAlphaELBO(alpha=alpha)
    options = {"objective": objective, "method": "lbfgs", "progress_bar": False}
    fit = host.fit(host.regression, host.x, host.y, **options)
    found = fit.by_draws
    assert found.loss == fit.loss
    assert 0 < found.standard_error < 0.05 * abs(fit.loss)
    assert abs(found.value - fit.loss) < 4 * found.standard_error


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"float64": True}, {"restarts": 2}])
def test_mini_batches_precisions_and_restarts(host, options):
    fit = host.fit(host.regression, host.x, host.y, steps=300, progress_bar=False, **options)
    found = fit.by_draws
    assert found.note == ""
    assert abs(found.value - found.loss) < 4 * found.standard_error
    if "batch_size" not in options:
        assert found.loss == fit.loss


def test_the_last_mini_batch_of_a_loader_is_taken_and_none_more(host):
    """An iterator stays where the training has left it."""
    source = iter([host.rows(k, k + 16) for k in (0, 16, 32, 48)])
    fit = host.fit(host.regression, source, rows=96, steps=3, progress_bar=False)
    assert fit.by_draws.note == ""
    assert len([*source]) == 1


def test_random_states_stay_as_they_were(host):
    states = []
    for by_draws in (True, False):
        pyro.set_rng_seed(3)
        fit = host.fit(host.regression, host.x, host.y, steps=5, by_draws=by_draws)
        states.append((torch.rand(()).item(), random.random(), fit.loss))
        pyro.clear_param_store()
    assert states[0] == states[1]


def test_what_is_drawn_or_has_no_expectation_is_not_run(host):
    package = host.package
    for objective in (
        package.DeterministicELBO(propagation="sampled", num_particles=2),
        package.DeterministicELBO(sample_sites=["weight"]),
        package.DeterministicELBO(propagation="mean"),
        package.RenyiELBO(alpha=0.5, num_particles=2),
    ):
        pyro.clear_param_store()
        fit = host.fit(host.regression, host.x, host.y, objective=objective, steps=2)
        assert "not run" in fit.by_draws.note
        assert type(objective).__name__ in fit.by_draws.note
        assert loss_by_draws(fit.by_draws).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("name", ["AutoNormal", "AutoDelta", "AutoDiagonalNormal"])
def test_guides_of_the_host(host, name):
    if host.name == "pyro":
        guide = getattr(pyro_guides, name)(host.regression)
    else:
        from numpyro.infer import autoguide

        guide = getattr(autoguide, name)(host.regression)
    fit = host.package.fit(host.regression, guide, host.x, host.y, steps=200, progress_bar=False)
    found = fit.by_draws
    assert found.note == ""
    assert abs(found.value - found.loss) <= 4 * found.standard_error + 1e-4 * abs(found.loss)


@pytest.mark.slow
def test_compiled_losses_are_drawn_by_the_program_itself():
    host = fresh("pyro")
    objective = host.package.DeterministicELBO(compiled=True)
    fit = host.fit(host.regression, host.x, host.y, objective=objective, steps=50)
    assert abs(fit.by_draws.value - fit.by_draws.loss) < 4 * fit.by_draws.standard_error


def test_the_progress_bar_ends_with_it(host, capsys):
    fit = host.fit(host.regression, host.x, host.y, steps=3, progress_bar=True)
    assert str(fit.by_draws) in capsys.readouterr().err.splitlines()[-1]


def test_the_jackknife_takes_the_bias_of_a_logarithm_out():
    """Of E log-normal with variance one: log E e^x = 1/2, which K draws underestimate by O(1/K)."""
    draws = np.random.default_rng(0).normal(size=(2000, 16, 1)) * 0.8
    zero, one = np.zeros(16), np.ones(16)
    found = np.array([jackknife(part, zero, one, alpha=1.0) for part in draws])
    plain = -np.log(np.exp(draws).mean(1))
    exact, noise = -(0.8**2) / 2, found[:, 0].std() / 2000**0.5
    assert abs(found[:, 0].mean() - exact) < 4 * noise
    assert abs(plain.mean() - exact) > 4 * noise
    assert np.mean(found[:, 1] ** 2) == pytest.approx(found[:, 0].var(), rel=0.3)


@pytest.mark.parametrize(
    ("found", "is_off"),
    [
        (ByDraws(), False),
        (ByDraws(101.5, 0.4, 100.0, ""), True),
        (ByDraws(101.5, 0.6, 100.0, ""), False),
        (ByDraws(100.9, 0.1, 100.0, ""), False),
        (ByDraws(-101.5, 0.4, -100.0, ""), True),
        (ByDraws(math.inf, math.nan, 100.0, ""), True),
        (ByDraws(math.nan, math.nan, 100.0, ""), True),
    ],
)
def test_three_standard_errors_and_one_per_cent(found, is_off):
    assert found.is_off == is_off
