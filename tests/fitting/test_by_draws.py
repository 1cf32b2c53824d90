"""The check at the end of a fit: what the trained loss is by draws of the guide."""

import math
import random
import warnings

import jax
import numpy as np
import pyro
import pytest
import torch

from moment_calculus.errors import LossByDrawsWarning
from moment_inference.criticism.diagnosis.checks import check_loss_by_draws
from moment_inference.criticism.diagnosis.findings import Verdict
from tests.checks.marks import IN_PYRO
from tests.fitting.models import CURVE, INPUTS, network, trained

rng = np.random.default_rng(4)
WIDE = rng.normal(size=(len(INPUTS), 10)).astype(np.float32)
CLASSES = np.argmax(np.maximum(WIDE @ rng.normal(size=(10, 8)), 0) @ rng.normal(size=(8, 3)), 1)
COUNTS = rng.poisson(np.exp(0.5 * CURVE)).astype(np.float32)
FLAGS = (rng.uniform(size=len(CURVE)) < 1 / (1 + np.exp(-2 * CURVE))).astype(np.float32)


@pytest.fixture
def certain():
    """Let every warning of the check fail a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", LossByDrawsWarning)
        yield


def checked(host, model, *data, **options):
    """A mean-field fit with the check."""
    return host.package.fit(model, host.package.DVIGuide(), *data, **options)


def classifier(host):
    family = lambda logits: host.dist.Categorical(logits=logits)  # noqa: E731
    return network(host, family, (3,), width=16, scale=4.0, unit="relu")


@IN_PYRO
def test_a_wrong_rule_for_classes_is_contradicted(host):
    """The second-order expansion of the source papers, whose optimum is where it is wrong."""
    objective = host.package.DeterministicELBO(categorical="delta")
    data = host.array(WIDE), host.array(CLASSES)
    with pytest.warns(LossByDrawsWarning, match=r'categorical="points"') as caught:
        fit = checked(host, classifier(host), *data, objective=objective, method="lbfgs", steps=100)
    (one,) = (each for each in caught if each.category is LossByDrawsWarning)
    assert one.filename == __file__  # the line of the user
    assert fit.by_draws.value > 3 * fit.loss
    finding = check_loss_by_draws(fit.by_draws)
    assert finding.verdict is Verdict.BAD
    assert 'propagation="sampled"' in finding.remedy


@IN_PYRO
def test_it_can_be_left_out(host):
    found = checked(host, host.regression, host.x, host.y, steps=2, by_draws=False).by_draws
    assert math.isnan(found.value)
    assert "by_draws=False" in found.note


FAMILIES = {"poisson": COUNTS, "bernoulli": FLAGS}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("certain")
@IN_PYRO
def test_networks_with_full_covariance_are_confirmed(host, family):
    likelihoods = {
        "poisson": lambda rate: host.dist.Poisson(
            (torch.exp if host.name == "pyro" else jax.numpy.exp)(rate)
        ),
        "bernoulli": lambda logit: host.dist.Bernoulli(logits=logit),
    }
    model = network(host, likelihoods[family])
    fit = trained(host, model, INPUTS, FAMILIES[family], tolerance=1e-6)
    found = fit.by_draws
    assert found.loss == fit.loss
    assert found.answer == "agrees"
    assert found.value == pytest.approx(found.loss, abs=4 * found.standard_error + 0.01 * fit.loss)
    assert found.standard_error < 0.01 * abs(fit.loss)


@IN_PYRO
def test_a_deep_network_with_diagonal_covariance_is_contradicted(host):
    """Variances alone lose half of the loss: the fit, its diagnosis and the layers say so."""
    family = lambda out: host.dist.Normal(out, 0.1)  # noqa: E731
    model = network(host, family, layers=3, width=30, scale=1.4, unit="relu")
    objective = host.package.DeterministicELBO(covariance="diagonal")
    x, y = INPUTS[:40], (CURVE * INPUTS[:, 1]).astype(np.float32)[:40]
    with pytest.warns(LossByDrawsWarning, match='covariance="full"'):
        fit = trained(host, model, x, y, objective=objective, steps=100)
    by_layer = host.package.moment_accuracy(
        model, fit.guide, host.array(x), host.array(y), covariance="diagonal", num_samples=300
    )
    assert fit.by_draws.value > 1.1 * fit.by_draws.loss
    assert check_loss_by_draws(fit.by_draws).verdict is Verdict.BAD
    assert by_layer["obs.loc"].measures.deviation_ratio.value < 0.8  # of that of draws
    assert "diagonal" in by_layer.sentence


@pytest.mark.parametrize(
    ("host", "alpha"),
    [("pyro", None), ("pyro", 0.5), ("pyro", 1.0), ("numpyro", 0.5)],
    indirect=["host"],
)
def test_of_a_linear_regression_draws_give_the_exact_loss(host, alpha):
    """Moments are exact there, also those of powers."""
    package = host.package
    objective = package.DeterministicELBO() if alpha is None else package.BBAlphaELBO(alpha=alpha)
    options = {"objective": objective, "method": "lbfgs", "progress_bar": False}
    fit = checked(host, host.regression, host.x, host.y, **options)
    found = fit.by_draws
    assert found.loss == fit.loss
    assert 0 < found.standard_error < 0.05 * abs(fit.loss)
    assert check_loss_by_draws(found).verdict is Verdict.GOOD
    assert abs(found.value - fit.loss) < 4 * found.standard_error


OPTIONS = [{"batch_size": 16}, {"float64": True}, {"restarts": 2}]


@pytest.mark.parametrize(
    ("host", "options"), [("pyro", options) for options in OPTIONS], indirect=["host"]
)
def test_mini_batches_precisions_and_restarts(host, options):
    fit = checked(host, host.regression, host.x, host.y, steps=60, progress_bar=False, **options)
    found = fit.by_draws
    assert found.note == ""
    assert abs(found.value - found.loss) < 4 * found.standard_error
    if "batch_size" not in options:
        assert found.loss == fit.loss


MANY = rng.normal(size=(2500, 2)).astype(np.float32)


@pytest.mark.parametrize("cut", [True, False])
@IN_PYRO
def test_of_many_rows_two_thousand_are_drawn(host, cut):
    """Scaled up, all but the divergence; all where the model has a number of rows of its own."""
    seen = set()

    def model(x, y=None):
        seen.add(len(x))
        weight = host.language.sample("weight", host.dist.Normal(0.0, 0.02).expand([2]).to_event(1))
        with host.language.plate("data", len(x) if cut else len(MANY)):
            host.language.sample("obs", host.dist.Normal(x @ weight, 1.0), obs=y)

    y = (MANY @ [1.0, -1.0] + rng.normal(size=len(MANY))).astype(np.float32)
    fit = trained(host, model, MANY, y)
    found = fit.by_draws
    assert 2000 in seen
    assert (found.loss != fit.loss) == cut
    assert abs(found.value - found.loss) < 4 * found.standard_error
    assert found.loss == pytest.approx(fit.loss, rel=0.02 if cut else 1e-6)


@pytest.mark.parametrize("options", [{"kl_warm_up": 80}, {"held_out": 48}])
@IN_PYRO
def test_the_closed_form_is_that_of_the_parameters_which_are_kept(host, options):
    """The last loss has a part of the divergence, or later parameters."""
    if "held_out" in options:
        options = {"held_out": host.rows(48, 96)}
    options = {**options, "steps": 60, "learning_rate": 0.05}
    fit = checked(host, host.regression, *host.rows(0, 48), **options)
    found = fit.by_draws
    assert abs(found.value - found.loss) < 4 * found.standard_error
    if "kl_warm_up" in options:
        assert found.loss > fit.loss + 1.0


@IN_PYRO
def test_a_resumed_and_a_streaming_fit(host, tmp_path):
    data, path = host.rows(0, 48), tmp_path / "training"
    checked(host, host.regression, *data, steps=20, checkpoint=path)
    pyro.clear_param_store()
    first = checked(host, host.regression, *data, steps=40, checkpoint=path)
    pyro.clear_param_store()
    second = checked(host, host.regression, *host.rows(48, 96), steps=40, prior=first)
    for fit in (first, second):
        assert fit.by_draws.loss == fit.loss
        assert abs(fit.by_draws.value - fit.loss) < 4 * fit.by_draws.standard_error


@IN_PYRO
def test_subsamples_that_the_model_draws_contradict_nothing(host):
    """Every loss is of other rows, far apart where nothing is trained yet."""

    def model(x, y):
        weight = host.weight()
        with host.language.plate("data", len(y), subsample_size=4) as rows:
            mean = x[rows] @ weight
            host.language.sample("obs", host.dist.Normal(mean, 0.3), obs=y[rows])

    with warnings.catch_warnings():
        warnings.simplefilter("error", LossByDrawsWarning)
        found = checked(host, model, host.x, host.y, steps=3, progress_bar=False).by_draws
    assert "subsamples" in found.note


@IN_PYRO
def test_the_last_mini_batch_of_a_loader_is_taken_and_none_more(host):
    """An iterator stays where the training has left it."""
    source = iter([host.rows(k, k + 16) for k in (0, 16, 32, 48)])
    fit = checked(host, host.regression, source, rows=96, steps=3, progress_bar=False)
    assert fit.by_draws.note == ""
    assert len([*source]) == 1


@IN_PYRO
def test_random_states_stay_as_they_were(host):
    states = []
    for by_draws in (True, False):
        pyro.set_rng_seed(3)
        fit = checked(host, host.regression, host.x, host.y, steps=5, by_draws=by_draws)
        states.append((torch.rand(()).item(), random.random(), fit.loss))
        pyro.clear_param_store()
    assert states[0] == states[1]


@IN_PYRO
def test_what_is_drawn_or_has_no_expectation_is_not_run(host):
    package = host.package
    for objective in (
        package.DeterministicELBO(propagation="sampled", num_particles=2),
        package.DeterministicELBO(sample_sites=["weight"]),
        package.DeterministicELBO(propagation="mean"),
        package.RenyiELBO(alpha=0.5, num_particles=2),
    ):
        pyro.clear_param_store()
        fit = checked(host, host.regression, host.x, host.y, objective=objective, steps=2)
        assert "not run" in fit.by_draws.note
        assert type(objective).__name__ in fit.by_draws.note
        assert check_loss_by_draws(fit.by_draws).verdict is Verdict.UNKNOWN


@IN_PYRO
def test_the_progress_bar_ends_with_it(host, capsys):
    fit = checked(host, host.regression, host.x, host.y, steps=3, progress_bar=True)
    assert str(fit.by_draws) in capsys.readouterr().err.splitlines()[-1]
