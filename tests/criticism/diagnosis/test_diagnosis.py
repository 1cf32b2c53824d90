"""Diagnoses of fits whose faults are known."""

import numpy as np
import pytest

from moment_inference.criticism.diagnosis.findings import Verdict
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import doubles

generator = np.random.default_rng(2)
ROWS = 60
CENTRED = generator.normal(size=(ROWS, 2))
CENTRED -= CENTRED.mean(0)
APART = CENTRED @ np.linalg.inv(np.linalg.cholesky(CENTRED.T @ CENTRED / ROWS)).T  # uncorrelated
SHIFTED = np.stack([np.ones(ROWS), 100 + 15 * APART[:, 0]], 1)  # an intercept, nothing centred
NOISE = 0.5 * generator.normal(size=ROWS)


def regression(host, noise=0.5):
    def model(x, y=None):
        prior = host.dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1)
        weight = host.language.sample("weight", prior)
        host.observe(x, host.dist.Normal(x @ weight, noise), y)

    return model


def diagnosed(host, model, x, y, guide=None, held_out=None, verbose=False, **options):
    options = {"method": "newton", **options}
    with doubles(host):
        data = [host.array(part) for part in (x, y)]
        result = host.package.fit(model, guide or host.package.DVIGuide(), *data, **options)
        test = None if held_out is None else tuple(map(host.array, held_out))
        return host.package.diagnose(
            model, result, *data, held_out=test, verbose=verbose, num_samples=2000
        )


def test_nothing_speaks_against_an_exact_posterior(host, capsys):
    found = diagnosed(host, regression(host), APART, APART @ [1.0, -2.0] + NOISE)
    assert found.is_good
    assert not found.problems
    assert str(found).endswith("Nothing speaks against it.")
    for check in ("optimum", "k̂ of DVIGuide", "k̂ of linear response", "standard deviations"):
        assert found[check].verdict is Verdict.GOOD
    assert capsys.readouterr().out == ""
    with pytest.raises(KeyError, match="'weather' was not looked at; there are optimum"):
        found["weather"]


@IN_PYRO
def test_variances_of_mean_field_are_called_too_small(host, capsys):
    y = SHIFTED @ [1.0, 0.02] + NOISE
    found = diagnosed(host, regression(host), SHIFTED, y, verbose=True)
    assert capsys.readouterr().out == f"{found}\n"
    assert found["k̂ of DVIGuide"].verdict is Verdict.BAD
    assert found["k̂ of linear response"].verdict is Verdict.GOOD
    scales = found["standard deviations"]
    assert scales.verdict is Verdict.BAD
    precision = SHIFTED.T @ SHIFTED / 0.5**2 + np.eye(2) / 100
    ratios = np.sqrt(np.diag(np.linalg.inv(precision)) * np.diag(precision))
    assert f"by a factor of {ratios.max():.3g}" in scales.meaning
    assert "variance is under-estimated: of 'weight'" in str(found).replace("\n  ", " ")
    assert "linear_response" in scales.remedy


@IN_PYRO
def test_what_has_not_converged_is_to_be_fitted_longer(host):
    y = APART @ [1.0, -2.0] + NOISE
    found = diagnosed(host, regression(host), APART, y, method="adam", steps=3)
    assert found["optimum"].verdict is Verdict.BAD
    assert "not converged" in found["optimum"].meaning
    assert "fit longer" in found["optimum"].remedy
    assert found["standard deviations"].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("noise", "wrong"), [(0.2, "too narrow"), (2.0, "too wide")])
@IN_PYRO
def test_calibration_is_that_of_held_out_data(host, noise, wrong):
    y = APART @ [1.0, -2.0] + NOISE
    held_out = APART[:40], y[:40]
    found = diagnosed(host, regression(host, noise), APART, y, held_out=held_out)
    calibration = found["calibration of obs"]
    assert calibration.verdict is Verdict.BAD
    assert wrong in calibration.meaning
    assert "held out" in calibration.value


@IN_PYRO
def test_influential_data_are_named(host):
    x = APART.copy()
    x[7] = [12.0, 0.0]
    y = x @ [1.0, -2.0] + NOISE
    y[7] += 8.0
    influential = diagnosed(host, regression(host), x, y)["leave one out of obs"]
    assert influential.verdict is Verdict.DOUBTFUL
    assert "(7,)" in influential.meaning


@IN_PYRO
def test_masks_have_no_weights(host):
    guide = host.package.MCDropoutGuide(p=0.1)
    found = diagnosed(
        host, regression(host), APART, APART @ [1.0, -2.0] + NOISE, guide, method="lbfgs"
    )
    finding = found["k̂ of MCDropoutGuide"]
    assert finding.verdict is Verdict.UNKNOWN
    assert "there are no importance weights" in finding.meaning


@IN_PYRO
def test_classes_are_diagnosed_by_their_probabilities(host):
    def model(x, y=None):
        prior = host.dist.Normal(0.0, 1.0).expand([2]).to_event(1)
        weight = host.language.sample("weight", prior)
        host.observe(x, host.dist.Bernoulli(logits=x @ weight), y)

    chance = 1 / (1 + np.exp(-APART @ [1.0, -2.0]))
    y = (np.random.default_rng(0).uniform(size=ROWS) < chance).astype(float)
    found = diagnosed(host, model, APART, y)
    assert found["calibration of obs"].verdict is Verdict.GOOD
    assert "calibration error" in found["calibration of obs"].value
