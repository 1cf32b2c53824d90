"""What ``fit`` returned stands for guide and parameters, which later fits leave as they are."""

import re

import jax
import numpy as np
import pyro
import pytest
import torch
from pyro.infer import Predictive

import pyro_moments
from tests.checks import small_programs
from tests.fitting.models import HOSTS, fresh

GUIDES = [
    ("pyro", "DVIGuide"),
    ("pyro", "TridiagonalGuide"),
    ("pyro", "AutoNormal"),
    ("numpyro", "DVIGuide"),
]


def fitted(host, x, y, guide="DVIGuide", **options):
    """A fit of the coefficients and the noise, which is a parameter of the model."""
    model = noisy(host)
    made = host.autoguide.AutoNormal(model) if guide == "AutoNormal" else None
    options = {"method": "newton", "by_draws": False, **options}
    return host.package.fit(model, made or getattr(host.package, guide)(), x, y, **options)


def noisy(host):
    """A regression with as many coefficients as columns."""
    positive = host.dist.constraints.positive

    def model(x, y=None):
        prior = host.dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1)
        weight = host.language.sample("weight", prior)
        noise = host.language.param("noise", host.array(1.0), constraint=positive)
        return host.observe(x, host.dist.Normal(x @ weight, noise), y)

    return model


def moments(host, fit, x):
    """Mean and variance of predictions."""
    prediction = host.package.predict(noisy(host), fit, x)["obs"]
    return np.asarray(prediction.mean), np.asarray(prediction.variance)


@pytest.mark.parametrize(("host", "guide"), GUIDES, indirect=["host"])
def test_later_fits_of_other_data_and_shapes_change_nothing(host, guide):
    first = fitted(host, host.x, host.y, guide)
    before = moments(host, first, host.x)
    second = fitted(host, host.x, -host.y, guide)
    third = fitted(host, host.x[:, :2], host.y, guide)
    assert (np.asarray(moments(host, first, host.x)) == before).all()
    np.testing.assert_allclose(moments(host, second, host.x)[0], -before[0], rtol=1e-2, atol=1e-2)
    assert moments(host, third, host.x[:, :2])[0].shape == before[0].shape


def test_the_check_of_a_fit_is_of_its_own_parameters(host):
    first = fitted(host, host.x, host.y)
    fitted(host, host.x, -host.y)
    options = {"num_samples": 200, "verbose": False}  # draws, of which this finding has none
    diagnosis = host.package.diagnose(noisy(host), first, host.x, host.y, **options)
    optimum = next(finding for finding in diagnosis.findings if finding.check == "optimum")
    assert optimum.verdict.value == "good"


def test_linear_response_and_files_take_a_fit(host, tmp_path):
    first = fitted(host, host.x, host.y)
    fitted(host, host.x[:, :2], host.y)
    package, model = host.package, noisy(host)
    response = package.linear_response(model, first, host.x, host.y)
    assert response.standard_deviation("weight").shape == (3,)
    package.save(tmp_path / "fit", model, first, host.x, host.y)
    loaded = package.load(tmp_path / "fit", model, package.DVIGuide(), host.x)
    np.testing.assert_array_equal(moments(host, loaded, host.x), moments(host, first, host.x))


def test_a_fit_begins_where_another_one_ended_if_asked(host):
    first = fitted(host, host.x, host.y)
    again = fitted(host, host.x, host.y)
    further = fitted(host, host.x, host.y, start=first)
    assert again.losses[0] == first.losses[0]
    assert further.losses[0] == pytest.approx(first.loss, rel=1e-6)
    with pytest.raises(ValueError, match="restarts begin with new parameters"):
        fitted(host, host.x, host.y, start=first, restarts=2, method="adam")
    with pytest.raises(TypeError, match="start takes what fit or load returned, got DVIGuide"):
        fitted(host, host.x, host.y, start=first.guide)


def test_a_seed_alone_repeats_a_fit(host):
    def losses(seed, draw):
        if host.name == "pyro":
            torch.manual_seed(draw)
        options = {"batch_size": 32, "steps": 6, "seed": seed, "by_draws": False}
        fit = host.package.fit(network, host.package.DVIGuide(), host.x, host.y, **options)
        return fit.losses

    def network(x, y=None):
        sample, normal = host.language.sample, host.dist.Normal
        first = sample("first", normal(0.0, 1.0).expand([3, 4]).to_event(2))
        last = sample("last", normal(0.0, 1.0).expand([4]).to_event(1))
        with host.language.plate("data", len(x)):
            return sample("obs", normal(host.np.tanh(x @ first) @ last, 1.0), obs=y)

    assert losses(0, draw=1) == losses(0, draw=2)
    assert losses(0, draw=1) != losses(1, draw=1)


def test_parameters_that_are_no_dictionary_are_named():
    host = HOSTS["numpyro"]
    with pytest.raises(TypeError, match="pass what fit returned in place of the guide"):
        host.package.predict(noisy(host), noisy(host), host.x)


def test_pyros_own_verbs_take_the_guide_of_the_last_fit():
    host = HOSTS["pyro"]
    pyro.clear_param_store()
    first = fitted(host, host.x, host.y)
    draws = Predictive(noisy(host), guide=first.guide, num_samples=400)(host.x)["obs"]
    mean, variance = moments(host, first, host.x)
    assert (abs(draws.mean(0).numpy() - mean) < 5 * np.sqrt(variance / 400)).all()


def test_guides_of_one_class_train_side_by_side_in_pyro():
    host = HOSTS["pyro"]
    pyro.clear_param_store()
    pairs = [(host.x, host.y), (host.x[:, :2], host.y)]
    trainings = [
        pyro_moments.SVI(noisy(host), pyro_moments.DVIGuide(), pyro_moments.DeterministicELBO())
        for _ in pairs
    ]
    losses = [
        [svi.step(*data) for svi, data in zip(trainings, pairs, strict=True)] for _ in range(30)
    ]
    assert losses[-1] < losses[0]
    assert [len(svi.guide.median()["weight"]) for svi in trainings] == [3, 2]


def test_a_new_guide_takes_over_parameters_that_pyro_loaded(tmp_path):
    host = HOSTS["pyro"]
    pyro.clear_param_store()
    first = fitted(host, host.x, host.y)
    pyro.get_param_store().save(tmp_path / "store")
    fitted(host, host.x, -host.y)
    pyro.clear_param_store()
    pyro.get_param_store().load(tmp_path / "store")
    guide = pyro_moments.DVIGuide(noisy(host))
    guide(host.x, host.y)
    assert torch.equal(guide.median()["weight"], first.params["DVIGuide.locs.weight"])


def test_a_fit_says_in_four_lines_how_it_went(host):
    lines = repr(fitted(host, host.x, host.y, by_draws=True)).splitlines()
    patterns = [
        r"Fit of DVIGuide: loss -?\d+\.\d+ after \d+ steps",
        r"by draws -?\d+\.?\d* ± 0\.\d+, by moments -?\d+\.?\d*",
        r"converged: .*decrement",
        r"seconds: \d+\.\d+ preparing, \d+\.\d+ fitting",
    ]
    assert len(lines) == 4
    assert all(map(re.search, patterns, lines))


def chains(host, model, *data, **kernel):
    """Chains of a few steps in the framework."""
    nuts = host.language.infer.NUTS(model, **kernel)
    if host.name == "pyro":
        mcmc = host.language.infer.MCMC(nuts, 2, warmup_steps=1, disable_progbar=True)
        mcmc.run(*data)
    else:
        mcmc = host.language.infer.MCMC(nuts, num_warmup=1, num_samples=2, progress_bar=False)
        with small_programs.large_by_numpy():  # three steps take less than to compile one
            mcmc.run(jax.random.key(0), *data)
    return mcmc.get_samples()["weight"]


@pytest.mark.parametrize("float64", [False, True])
@pytest.mark.parametrize("guide", ["DVIGuide", "AutoNormal"])
def test_chains_start_at_a_fit(host, guide, float64):
    """With a step that is too small to leave it."""
    model, data = host.regression, (host.x, host.y)
    made = host.autoguide.AutoNormal(model) if guide == "AutoNormal" else host.package.DVIGuide()
    fit = host.package.fit(model, made, *data, steps=50, by_draws=False, float64=float64)
    fixed = {"step_size": 1e-7, "adapt_step_size": False, "max_tree_depth": 1}
    draws = chains(host, model, *data, init_strategy=host.package.init_to_fit(fit), **fixed)
    (location,) = (part for name, part in fit.params.items() if re.search(r"\bloc|_loc", name))
    np.testing.assert_allclose(np.asarray(draws)[-1], np.asarray(location), atol=1e-4)


def test_chains_start_at_fits_alone(host):
    with pytest.raises(TypeError, match=r"takes what fit\(...\) or load\(...\) returned"):
        host.package.init_to_fit(host.package.DVIGuide())
    with pytest.raises(TypeError, match="method has no median"):
        host.package.init_to_fit(host.package.Fit(guide=host.regression, params={}, seconds={}))


@pytest.mark.parametrize(
    ("host", "kind"),
    [("pyro", "DVIGuide"), ("pyro", "TridiagonalGuide"), ("numpyro", "DVIGuide")],
    indirect=["host"],
)
def test_one_guide_starts_anew_in_every_fit(host, kind):
    """Also of another shape; earlier fits and their responses stay as they are."""
    package, model, guide = host.package, noisy(host), getattr(host.package, kind)()

    def fit(x, **options):
        return package.fit(model, guide, x, host.y, method="newton", by_draws=False, **options)

    first = fit(host.x)
    response, before = (
        package.linear_response(model, first, host.x, host.y),
        moments(host, first, host.x),
    )
    again, narrow = fit(host.x), fit(host.x[:, :2])
    assert again.losses == first.losses
    assert moments(host, narrow, host.x[:, :2])[0].shape == before[0].shape
    assert (np.asarray(moments(host, first, host.x)) == before).all()
    found = response.predict(host.x)["obs"].mean
    np.testing.assert_allclose(found, before[0], rtol=1e-4, atol=1e-4)
    assert fit(host.x, start=first).losses[0] == pytest.approx(first.loss, rel=1e-6)


def test_a_guide_that_svi_trained_is_trained_further():
    """Pyro's own training left no other place for its parameters than the guide."""
    host, guide = fresh("pyro"), pyro_moments.DVIGuide()
    svi = pyro_moments.SVI(host.regression, guide, pyro_moments.DeterministicELBO())
    losses = [svi.step(host.x, host.y) for _ in range(3)]
    fit = host.package.fit(host.regression, guide, host.x, host.y, steps=1, by_draws=False)
    assert fit.losses[0] < losses[-1]


@pytest.mark.filterwarnings("error")
def test_predictions_of_a_fit_in_double_precision_are_scored(host):
    """In JAX by single precision, where it has no doubles outside of the fit, without a warning."""
    model = host.regression
    fit = host.package.fit(
        model, host.package.DVIGuide(), host.x, host.y, method="newton", float64=True
    )
    prediction = host.package.predict(model, fit, host.x)["obs"]
    errors = np.asarray(prediction.mean) - np.asarray(host.y)
    scored = host.package.calibration(prediction, np.asarray(host.y, np.float64))
    assert scored.rmse == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)
