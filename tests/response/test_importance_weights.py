"""Linear response weighted by the posterior, against quadrature."""

from functools import cache

import jax
import numpy as np
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from moment_inference.response.response import Response
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import doubles, fresh
from tests.response.eight_schools import SIGMA, Y, exact, schools

MEAN, COVARIANCE, TAU, TAU_SD = exact()
EFFECT_SD = np.sqrt(np.diag(COVARIANCE))
ERROR = 0.08  # five standard errors of a deviation by 6000 draws' worth, with kurtosis up to 6


@cache
def fitted(name, float64=True):
    """Model, its arguments and linear response."""
    host, number = fresh(name), np.float64 if float64 else np.float32
    data = [host.array(part.astype(number)) for part in (SIGMA, Y)]
    model = schools(host)
    result = host.fit(model, *data, method="newton", float64=float64)
    tolerance = 1e-9 if float64 else 1e-3
    response = host.package.linear_response(
        model, result.guide, *data, params=result.params, tolerance=tolerance
    )
    return model, data, response


def drawn(host, response, count, **options):
    """Draws as arrays, by a seed."""
    torch.manual_seed(3)
    key = (jax.random.key(3),) if host.name == "numpyro" else ()
    found = response.sample(count, *key, **options)
    return {name: np.asarray(value) for name, value in found.items()}


def effects(sites):
    return sites["mu"] + sites["tau"] * sites["z"]


@pytest.mark.parametrize(("host", "float64"), [("pyro", True), ("pyro", False)], indirect=["host"])
def test_weighted_moments_are_those_of_the_posterior(host, float64):
    with doubles(host) if float64 else np.errstate():
        response = fitted(host.name, float64)[-1]
        found = response.moments(effects, importance_weights=True)
        tau = response.moments("tau", importance_weights=True)
    deviation = np.sqrt(np.diag(np.asarray(found.covariance)))
    np.testing.assert_allclose(deviation / EFFECT_SD, 1, atol=ERROR)
    np.testing.assert_allclose((np.asarray(found.mean) - MEAN) / EFFECT_SD, 0, atol=ERROR)
    correlation = np.asarray(found.covariance) / np.outer(deviation, deviation)
    known = COVARIANCE / np.outer(EFFECT_SD, EFFECT_SD)
    np.testing.assert_allclose(correlation, known, atol=ERROR)
    assert float(tau.mean) / TAU == pytest.approx(1, abs=ERROR)
    assert float(tau.variance) ** 0.5 / TAU_SD == pytest.approx(1, abs=2 * ERROR)
    assert ("64" if float64 else "32") in str(found.mean.dtype)


def test_weighted_draws_are_of_the_posterior_and_plain_ones_too_wide(host):
    with doubles(host):
        model, data, response = fitted(host.name)
        plain, weighted = (drawn(host, response, 4000, importance_weights=w) for w in (False, True))
        again = drawn(host, response, 4000, importance_weights=True)
        options = {"num_samples": 4000, "num_prior_samples": 0}
        container = host.package.to_inference_data(
            model, response, *data, importance_weights=True, **options
        )
    assert plain["tau"].std() / TAU_SD > 1.5
    assert weighted["tau"].std() / TAU_SD == pytest.approx(1, abs=2 * ERROR)
    effect = weighted["mu"].reshape(-1, 1) + weighted["tau"].reshape(-1, 1) * weighted["z"]
    np.testing.assert_allclose(effect.std(0) / EFFECT_SD, 1, atol=1.5 * ERROR)
    np.testing.assert_array_equal(weighted["z"], again["z"])
    posterior = container.posterior
    deviation = posterior["effect"].std(("chain", "draw")).values
    np.testing.assert_allclose(deviation / EFFECT_SD, 1, atol=1.5 * ERROR)
    assert "% effective" in posterior.attrs["importance_weights"]
    assert "log_q" not in container.sample_stats


@IN_PYRO
def test_any_quantity_has_moments(host):
    with doubles(host):
        _, data, response = fitted(host.name)
        options = {"importance_weights": True, "num_samples": 4000}
        named = response.moments("effect", **options)
        function = response.moments(lambda sites: {"a": effects(sites)}, **options)["a"]
        chance = response.moments(lambda sites: (sites["tau"] > 5.0) * 1.0, **options)
        observed = response.moments("y", **options)
        new = response.moments("y", 2 * data[0], **options)
        with pytest.raises(ValueError, match="'weather' is no site of the model"):
            response.moments("weather", **options)
    for other in (function, observed, new):  # the mean of y is the effect
        np.testing.assert_allclose(np.asarray(other.covariance), np.asarray(named.covariance))
    assert 0 < float(chance.mean) < 1
    p = float(chance.mean)
    assert float(chance.variance) == pytest.approx(p * (1 - p), rel=1e-2)


@IN_PYRO
def test_weights_that_cannot_be_trusted_are_refused(host, monkeypatch):
    with doubles(host):
        *_, response = fitted(host.name)
        problem = type(response.problem)
        own = problem.log_joint
        narrow = lambda self, values: 30 * own(self, values)  # noqa: E731
        monkeypatch.setattr(problem, "log_joint", narrow)
        for ask in (
            lambda: response.moments("tau", importance_weights=True),
            lambda: drawn(host, response, 10, importance_weights=True),
        ):
            with pytest.raises(
                UnsupportedMoments, match=r"cannot be trusted: their k̂ is"
            ) as refusal:
                ask()
            assert refusal.value.sites == ("mu", "tau", "z")
            assert "NUTS" in refusal.value.remedy
    assert issubclass(type(response), Response)


@IN_PYRO
def test_diagnose_advises_weights_where_draws_with_all_covariances_are_too_wide(host):
    with doubles(host):
        model, data = schools(host), [host.array(part) for part in (SIGMA, Y)]
        options = {"method": "newton", "by_draws": False, "progress_bar": False}
        fit = host.package.fit(model, host.package.GaussianGuide(init_scale=0.3), *data, **options)
        found = host.package.diagnose(model, fit, *data, verbose=False)
        response = host.package.linear_response(model, fit, *data)
        weighted = response.moments(effects, importance_weights=True)
    (draws,) = [part for part in found.findings if part.check.endswith("of linear response")][1:]
    assert (draws.verdict.value, "'tau' on its support" in draws.meaning) == ("bad", True)
    assert "importance_weights=True" in draws.remedy
    deviation = np.sqrt(np.diag(np.asarray(weighted.covariance)))
    np.testing.assert_allclose(deviation / EFFECT_SD, 1, atol=ERROR)
