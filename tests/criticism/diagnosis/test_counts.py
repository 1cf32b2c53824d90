"""Diagnoses of counts with two random parameters, whose sums in closed form take a minute."""

from __future__ import annotations

import numpy as np
import pytest

from moment_calculus.criticism.calibration.calibration import calibration
from moment_calculus.criticism.diagnosis import diagnosis
from moment_calculus.criticism.diagnosis.findings import Verdict
from moment_calculus.predictions.mixtures import SampledSite
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import X, doubles, fresh

COUNTS = np.random.default_rng(0).negative_binomial(3, 0.4, size=len(X))


@pytest.fixture
def host(request):
    return fresh(request.param)


@IN_PYRO
def test_counts_are_judged_by_draws(host, monkeypatch):
    judged = []
    seen = lambda prediction, y: judged.append(prediction) or calibration(prediction, y)  # noqa: E731
    monkeypatch.setattr(diagnosis, "calibration", seen)

    def model(x, y=None):
        shape, level = (
            host.language.sample(site, host.dist.LogNormal(1.0, 0.5)) for site in ("shape", "level")
        )
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.GammaPoisson(shape, shape / level), obs=y)

    with doubles(host):
        data = [host.array(part) for part in (X, COUNTS.astype(float))]
        result = host.package.fit(model, host.package.DVIGuide(), *data, method="newton")
        options = {"verbose": False, "num_samples": 500}
        found = host.package.diagnose(model, result, *data, **options)
    (prediction,) = judged
    assert isinstance(prediction, SampledSite)
    assert prediction.marginal.random_parameters == 0
    assert found["calibration of obs"].verdict is Verdict.GOOD
