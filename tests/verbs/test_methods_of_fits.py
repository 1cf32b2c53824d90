"""Methods of a fit, and the order of arguments of the verbs."""

import functools
import pickle

import numpy as np
import pytest

from tests.checks.marks import IN_PYRO
from tests.fitting.models import HOSTS, fresh


@functools.cache
def trained(name):
    """A fit of the host's regression, made once."""
    host = fresh(name)
    return host.fit(host.regression, host.x, host.y, steps=2)


def arrays(by_site):
    return {name: np.asarray(part) for name, part in by_site.items()}


def test_a_fit_predicts_by_the_model_that_it_was_trained_with(host):
    result = trained(host.name)
    expected = host.package.predict(host.regression, result, host.x[:3])["obs"]
    found = result.predict(host.x[:3])["obs"]
    np.testing.assert_array_equal(np.asarray(found.variance), np.asarray(expected.variance))
    np.testing.assert_allclose(np.asarray(found.std) ** 2, np.asarray(found.variance), rtol=1e-6)


def test_a_fit_predicts_from_dictionaries():
    """Which in NumPyro are not taken as the parameters."""
    host = fresh("numpyro")

    def model(data, y=None):
        return host.regression(data["x"], y)

    result = host.package.Fit(
        guide=(known := trained("numpyro")).guide, params=known.params, seconds={}
    )
    result.with_model(model, known.verbs)
    found = result.predict({"x": host.x[:3]})["obs"].mean
    np.testing.assert_array_equal(found, known.predict(host.x[:3])["obs"].mean)


def test_options_reach_the_verb(host):
    mean = trained(host.name).predict(host.x[:3], propagation="mean")["obs"]
    np.testing.assert_array_equal(np.asarray(mean.epistemic_variance), 0)


def test_medians_and_quantiles_are_those_of_the_guide(host):
    result = trained(host.name)
    median, quantiles = result.median()["weight"], result.quantiles([0.1, 0.5])["weight"]
    assert tuple(quantiles.shape) == (2, 3)
    np.testing.assert_allclose(np.asarray(median), host.location(result), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(quantiles[1]), np.asarray(median), atol=1e-6)
    assert (np.asarray(quantiles[0]) < np.asarray(median)).all()
    with pytest.raises(ValueError, match="between 0 and 1"):
        result.quantiles([1.5])


@IN_PYRO
def test_they_are_of_the_fit_when_its_guide_is_trained_again(host):
    guide, data = host.package.DVIGuide(), (host.x, host.y)
    first = host.package.fit(host.regression, guide, *data, steps=2, by_draws=False)
    before = arrays(first.median())["weight"]
    host.package.fit(host.regression, guide, *data, steps=20, by_draws=False)
    np.testing.assert_array_equal(arrays(first.median())["weight"], before)


def test_the_summary_has_a_line_for_each_element(host):
    lines = trained(host.name).summary(0.8).splitlines()
    assert lines[0].split() == ["median", "10%", "90%"]
    assert [line.split()[0] for line in lines[1:]] == ["weight[0]", "weight[1]", "weight[2]"]
    quantiles = np.asarray(trained(host.name).quantiles((0.5, 0.1, 0.9))["weight"])
    np.testing.assert_allclose([*map(float, lines[1].split()[1:])], quantiles[:, 0], rtol=1e-3)


def test_a_fit_saves_itself_and_knows_its_model_when_it_is_loaded(host, tmp_path):
    result = trained(host.name)
    result.save(tmp_path / "file")
    loaded = host.package.load(tmp_path / "file", host.regression, host.package.DVIGuide(), host.x)
    expected, found = (fit.predict(host.x[:3])["obs"].mean for fit in (result, loaded))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    np.testing.assert_array_equal(*(arrays(fit.median())["weight"] for fit in (result, loaded)))


def test_a_pickle_has_no_model():
    result = trained("numpyro")
    found = pickle.loads(pickle.dumps(result))
    assert found.params.keys() == result.params.keys()
    with pytest.raises(ValueError, match=r"call predict\(model, result, \.\.\.\)"):
        found.predict(HOSTS["numpyro"].x)
    with pytest.raises(ValueError, match=r"call result\.guide\.median"):
        found.median()


@IN_PYRO
def test_guides_without_quantiles_are_named(host):
    guide = host.autoguide.AutoDelta(host.regression)
    result = host.package.fit(host.regression, guide, host.x, host.y, steps=2)
    assert result.median()["weight"].shape == (3,)
    with pytest.raises(TypeError, match="AutoDelta has no quantiles"):
        result.summary()


def test_the_former_order_is_taken_with_a_word(host):
    result, options = trained(host.name), {"num_samples": 40, "num_prior_samples": 0}
    model, data, convert = host.regression, (host.x, host.y), host.package.to_inference_data
    fresh(host.name)
    found = convert(model, result, *data, **options)
    fresh(host.name)
    with pytest.warns(FutureWarning, match=r"write to_inference_data\(model, posterior, \.\.\.\)"):
        former = convert(result, model, *data, **options)
    np.testing.assert_array_equal(former.posterior["weight"], found.posterior["weight"])
    with pytest.warns(FutureWarning, match=r"write loo\(model, posterior, \.\.\.\)"):
        host.package.loo(result, model, *data, num_samples=40)


def test_p_values_of_a_model_are_those_of_its_container(host):
    result, model, data = trained(host.name), host.regression, (host.x, host.y)
    statistics = {"max": np.max}
    p_values, convert = host.package.predictive_p_values, host.package.to_inference_data
    fresh(host.name)
    container = convert(model, result, *data, num_samples=30)
    fresh(host.name)
    found = p_values(model, result, *data, statistics=statistics, num_samples=30)
    assert found.equals(p_values(container, statistics, "posterior_predictive"))
    assert found.equals(p_values(container, statistics=statistics))
    by_default = p_values(container)
    named = {"smallest": np.min, "largest": np.max, "standard deviation": np.std}
    assert by_default.equals(p_values(container, named))
