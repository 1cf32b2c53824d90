"""Diagnoses where something hides data, has no spread, or hardly any weight."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from moment_inference.criticism.calibration.calibration import calibration
from moment_inference.criticism.diagnosis import checks
from moment_inference.criticism.diagnosis.checks import check_weights
from moment_inference.criticism.diagnosis.findings import Verdict
from moment_inference.criticism.diagnosis.inputs import DiagnosisInputs
from moment_inference.criticism.draws import Draws
from moment_inference.optimisation.outcome import Dependence
from tests.criticism.containers.programs import NOISE, X, Y, doubles, fresh, scaled
from tests.criticism.predicted import predicted

SHOWN = np.arange(len(X)) % 3 != 0


@pytest.fixture
def host():
    """One of both, as they share what is said."""
    return fresh("pyro")


def masked(host):
    def model(x, y=None):
        weight = host.weight()
        fn = host.dist.Normal(x @ weight, NOISE).mask(host.array(SHOWN))
        host.observe(x, fn, y)

    return model


def diagnosed(host, model, y, guide=None, **options):
    with doubles(host):
        data = [host.array(part) for part in (X, y)]
        guide = guide or host.package.DVIGuide()
        result = host.package.fit(model, guide, *data, by_draws=False, **options)
        return host.package.diagnose(model, result, *data, verbose=False, num_samples=1000)


def test_what_stands_behind_a_mask_is_no_observation(host):
    found = diagnosed(host, masked(host), np.where(SHOWN, Y, 1000.0), method="newton")
    for check in ("calibration of obs", "replicated obs"):
        assert found[check].verdict is Verdict.UNKNOWN
        assert found[check].meaning.startswith("7 of 20 elements are masked")
    assert found.is_good


def test_counts_of_nested_quadratures_are_judged_by_draws(monkeypatch):
    """Each probability of a count with two random parameters takes seconds."""
    counts = np.random.default_rng(0).poisson(2.0, size=20)
    drawn = predicted("pyro", "Poisson", np.full((3, 20), 2.0), kind="SampledPrediction")
    slow = predicted("pyro", "GammaPoisson", np.full(20, 3.0), np.full(20, 1.5))
    nested = dataclasses.replace(slow.marginal, random_parameters=2)
    monkeypatch.setattr(type(slow), "marginal", nested)
    judged = []
    seen = lambda prediction, y: judged.append(prediction) or calibration(drawn, y)  # noqa: E731
    monkeypatch.setattr(checks, "calibration", seen)
    fitted = SimpleNamespace(
        approximation="guide",
        test=None,
        observed={},
        held_out={"y": counts},
        masked=lambda held_out: {},
        predictions=lambda _: {"y": slow},
    )
    [*checks._calibrations(SimpleNamespace(fitted_model=fitted, mixtures={"y": drawn}))]
    assert judged == [drawn]


def test_a_point_has_no_spread(host):
    model = scaled(host)
    found = diagnosed(host, model, Y, host.autoguide.AutoDelta(model), method="newton")
    assert found["standard deviations"].verdict is Verdict.BAD
    assert found["standard deviations"].meaning.startswith("AutoDelta is a point at")
    assert found["k̂ of AutoDelta"].verdict is Verdict.UNKNOWN


def inputs_of(log_weights, size=3):
    count = len(log_weights)
    draws = Draws("", {"x": np.zeros((1, count, size))}, log_density=-log_weights[None])
    subject = SimpleNamespace(
        approximation="DVIGuide",
        approximations=["DVIGuide"],
        cached_draws=lambda _: draws,
        dependence=Dependence(),  # not known
        log_joint=lambda _: np.zeros(count),
    )
    return DiagnosisInputs(subject, count)


@pytest.mark.parametrize(("scale", "verdict"), [(0.02, Verdict.GOOD), (1.0, Verdict.BAD)])
def test_weights_that_are_all_but_constant_have_no_tail_that_matters(scale, verdict):
    tail = np.random.default_rng(0).standard_t(1.2, size=4000).clip(-50, 50)
    inputs = inputs_of(scale * tail)
    found = inputs.weights("DVIGuide")
    assert found.shape > 0.7
    assert (found.share > 0.9) == (verdict is Verdict.GOOD)
    assert check_weights(inputs, "DVIGuide").verdict is verdict
    assert f"{float(found.share):.0%} effective" in check_weights(inputs, "DVIGuide").value


@pytest.mark.parametrize("log_weights", [np.zeros(500), np.log(np.arange(1, 501) / 500)])
def test_effective_draws(log_weights):
    normalised = np.exp(log_weights) / np.exp(log_weights).sum()
    found = inputs_of(log_weights).weights("DVIGuide")
    assert found.share == pytest.approx(1 / (500 * (normalised**2).sum()), rel=0.02)
