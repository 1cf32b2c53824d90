"""A fit remembers by which objective it was trained, in memory and in a file."""

import functools
import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from moment_calculus.values.propagation import EXACT
from moment_inference.optimisation.storage.files import KEY, canonical, digest
from tests.checks import small_programs
from tests.checks.marks import IN_PYRO
from tests.fitting.models import fresh

STEPS = {"steps": 2, "every": 2, "by_draws": False, "progress_bar": False}


def deep(host):
    """Two hidden layers, of which each covariance predicts another variance."""

    def weight(name, *shape):
        prior = host.dist.Normal(0.0, 1.0).expand(shape).to_event(2)
        return host.language.sample(name, prior)

    def model(x, y=None):
        for name, width in (("a", 3), ("b", 3), ("c", 1)):
            x = host.np.tanh(x @ weight(name, x.shape[-1], width))
        with host.language.plate("rows", len(x)):
            host.language.sample("obs", host.dist.Normal(x[:, 0], 0.3), obs=y)

    return model


def coin(host):
    """A logistic regression, of which every objective has another optimum."""

    def model(x, y=None):
        prior = host.dist.Normal(0.0, 2.0).expand([2]).to_event(1)
        weight = host.language.sample("weight", prior)
        with host.language.plate("rows", len(x)):
            fn = host.dist.Bernoulli(logits=weight[0] + weight[1] * x)
            host.language.sample("obs", fn, obs=y)

    return model


def tosses(host):
    x = np.linspace(-1, 1, 30).astype(np.float32)
    kind = np.float32 if host.name == "pyro" else np.int32
    y = np.random.default_rng(0).uniform(size=30) < 1 / (1 + np.exp(-3 * x))
    return host.array(x), host.array(y.astype(kind))


def variance(host, model, fit, **options):
    return np.asarray(host.package.predict(model, fit, host.x[:4], **options)["obs"].variance)


def stored(host, tmp_path, model, fit, *data, **options):
    """The fit out of a file."""
    host.package.save(tmp_path / "fit", model, fit, *data)
    fresh(host.name)
    return host.package.load(tmp_path / "fit", model, host.package.DVIGuide(), *data, **options)


def without_objective(path):
    """Make of a file what was written before files told the objective."""
    with safe_open(path, framework="np") as file:
        record = json.loads(file.metadata()[KEY])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del record["header"]["objective"]
    record["digest"] = digest(record["header"], arrays)
    save_file(arrays, path, metadata={KEY: canonical(record)})


@pytest.mark.parametrize("option", [{"covariance": "diagonal"}, {"rules": "first_order"}])
def test_predictions_are_by_the_covariance_and_the_rules_of_the_training(host, tmp_path, option):
    model, objective = deep(host), host.package.DeterministicELBO(**option)
    fit = host.fit(model, host.x, host.y, objective=objective, **STEPS)
    others, expected = (
        variance(host, model, fit, **{"covariance": "full", "rules": "exact", **given})
        for given in ({}, option)
    )
    assert fit.objective is objective
    assert (others != expected).any()  # explicit arguments win
    for one in (fit, stored(host, tmp_path, model, fit, host.x, host.y)):
        np.testing.assert_array_equal(variance(host, model, one), expected)


def test_accuracies_are_of_the_rules_of_the_training(host):
    model, objective = deep(host), host.package.DeterministicELBO(rules="first_order")
    fit = host.fit(model, host.x, host.y, objective=objective, **STEPS)
    by_default, by_rules, exact = (
        errors(host, model, fit, **given)
        for given in ({}, {"rules": "first_order"}, {"rules": "exact"})
    )
    assert by_default == by_rules != exact


def errors(host, model, fit, **options):
    host.language.util.set_rng_seed(0) if host.name == "pyro" else None
    with small_programs.large_by_numpy():
        accuracy = host.package.moment_accuracy(model, fit, host.x[:4], num_samples=100, **options)
    return str(accuracy)


@functools.cache
def at_optimum(framework):
    """A model, its data, and a fit by Newton's method that two tests look at."""
    host = fresh(framework)
    model, data = coin(host), tosses(host)
    options = {"method": "newton", "float64": True, "progress_bar": False}
    fit = host.fit(model, *data, objective=host.package.BBAlphaELBO(alpha=1.0), **options)
    return model, data, fit


def test_responses_are_of_the_objective_of_the_training(host, tmp_path):
    model, data, fit = at_optimum(host.name)
    objective = host.package.BBAlphaELBO(alpha=1.0)
    respond = host.package.linear_response
    expected = respond(model, fit, *data, objective=objective).standard_deviation("weight")
    for one in (fit, stored(host, tmp_path, model, fit, *data)):
        found = respond(model, one, *data).standard_deviation("weight")
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(host.package.NotAnOptimum):
        respond(model, fit, *data, objective=host.package.DeterministicELBO())


def test_diagnoses_are_of_the_objective_of_the_training(host):
    model, data, fit = at_optimum(host.name)
    findings = host.package.diagnose(model, fit, *data, num_samples=200, verbose=False).findings
    (optimum,) = [finding for finding in findings if finding.check == "optimum"]
    assert optimum.verdict.value == "good"
    assert "BBAlphaELBO(alpha=1.0)" in optimum.meaning


def test_objectives_by_draws_are_named_where_draws_are_none(host, tmp_path):
    """Of the frameworks' own, and ours, also after loading."""
    own = host.language.infer.Trace_ELBO(num_particles=3)
    bound = host.package.RenyiELBO(alpha=0.5, num_particles=3)
    for objective, text in (
        (own, "Trace_ELBO(num_particles=3)"),
        (bound, "RenyiELBO(alpha=0.5, num_particles=3)"),
    ):
        fit = host.fit(host.regression, host.x, host.y, objective=objective, **STEPS)
        fit = stored(host, tmp_path, host.regression, fit, host.x, host.y)
        assert type(fit.objective) is type(objective)
        with pytest.raises(ValueError, match="not deterministic") as raised:
            host.package.linear_response(host.regression, fit, host.x, host.y)
        assert text in str(raised.value)
        assert (
            host.package.predict(host.regression, fit, host.x)["obs"].epistemic_variance.max() > 0
        )


def test_predictions_are_by_the_propagation_of_the_training(host):
    elbo = host.package.DeterministicELBO
    by_mean = host.fit(host.regression, host.x, host.y, objective=elbo(propagation="mean"), **STEPS)
    assert (variance(host, host.regression, by_mean) == np.float32(0.3) ** 2).all()
    drawn = host.fit(
        host.regression, host.x, host.y, objective=elbo(propagation="sampled"), **STEPS
    )
    predicted = host.package.predict(host.regression, drawn, host.x)["obs"]
    assert isinstance(predicted, host.package.SampledPrediction)
    analytic = host.package.predict(host.regression, drawn, host.x, propagation="analytic")["obs"]
    assert isinstance(analytic, host.package.Prediction)


def test_a_resumed_training_takes_the_objective_of_its_checkpoint(host, tmp_path):
    path, model, package = tmp_path / "checkpoint", coin(host), host.package
    data, options = tosses(host), {**STEPS, "checkpoint": path}
    first = host.fit(model, *data, objective=package.BBAlphaELBO(alpha=0.9), **options)
    fresh(host.name)
    second = host.fit(model, *data, **{**options, "steps": 4})
    assert second.losses[:2] == first.losses[:2]
    assert (type(second.objective), second.objective.alpha) == (package.BBAlphaELBO, 0.9)
    for other, text in (
        (package.BBAlphaELBO(), "BBAlphaELBO()"),
        (package.DeterministicELBO(), "DeterministicELBO()"),
    ):
        fresh(host.name)
        both = rf"was BBAlphaELBO\(alpha=0.9\), and is {text[:-2]}\(\) now"
        with pytest.raises(package.StoredFileError, match=both):
            host.fit(model, *data, objective=other, **options)


@IN_PYRO
@pytest.mark.parametrize(
    "option", [{"covariance": "full"}, {"memory_limit": 1e9}, {"rules": "exact"}]
)
def test_options_that_change_nothing_do_not_keep_a_training_from_going_on(host, tmp_path, option):
    options = {**STEPS, "checkpoint": tmp_path / "checkpoint"}
    host.fit(host.regression, host.x, host.y, **options)
    fresh(host.name)
    other = host.package.DeterministicELBO(**option)
    fit = host.fit(host.regression, host.x, host.y, objective=other, **{**options, "steps": 4})
    assert fit.steps == 4


def test_a_class_of_ones_own_is_asked_for_after_loading(host, tmp_path):
    package, model, data = host.package, host.regression, (host.x, host.y)

    class Weighted(package.DeterministicELBO):
        """A loss of the user's."""

        def __init__(self, weight):
            super().__init__(covariance="diagonal")
            self.weight = weight

    fit = host.fit(model, *data, objective=Weighted(2.0), checkpoint=tmp_path / "c", **STEPS)
    loaded = stored(host, tmp_path, model, fit, *data)
    # How moments flow is known without the class.
    np.testing.assert_array_equal(variance(host, model, loaded), variance(host, model, fit))
    for verb in (package.linear_response, package.diagnose, package.compare_with_nuts):
        with pytest.raises(ValueError, match=r"trained by Weighted\(weight=2.0\).*objective="):
            verb(model, loaded, *data)
    with pytest.raises(package.NotAnOptimum):
        package.linear_response(model, loaded, *data, objective=Weighted(2.0))
    again = stored(host, tmp_path, model, loaded, *data, objective=Weighted(2.0))
    with pytest.raises(package.NotAnOptimum):
        package.linear_response(model, again, *data)
    with pytest.raises(package.StoredFileError, match=r"by Weighted\(weight=2.0\)"):
        host.fit(model, *data, checkpoint=tmp_path / "c", **STEPS)


@IN_PYRO
def test_a_rule_book_of_ones_own_is_asked_for_after_loading(host, tmp_path):
    book = EXACT.replacing(sigmoid=lambda function: function)
    objective, model = host.package.DeterministicELBO(rules=book), host.regression
    fit = host.fit(model, host.x, host.y, objective=objective, **STEPS)
    loaded = stored(host, tmp_path, model, fit, host.x, host.y)
    with pytest.raises(ValueError, match=r"'exact with another sigmoid'.*its rule book.*rules="):
        variance(host, model, loaded)
    assert (variance(host, model, loaded, rules=book) == variance(host, model, fit)).all()


def test_a_file_of_before_says_once_that_it_does_not_know(host, tmp_path, recwarn):
    model, data = host.regression, (host.x, host.y)
    fit = host.fit(model, *data, **STEPS)
    host.package.save(tmp_path / "fit", model, fit, *data)
    without_objective(tmp_path / "fit")
    fresh(host.name)
    loaded = host.package.load(tmp_path / "fit", model, host.package.DVIGuide(), *data)
    for _ in range(2):
        np.testing.assert_array_equal(variance(host, model, loaded), variance(host, model, fit))
    assert sum("before files told the objective" in str(each.message) for each in recwarn) == 1
