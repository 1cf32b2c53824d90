"""The check at the end of a fit with guides other than the mean field."""

from __future__ import annotations

import numpy as np
import pyro.infer.autoguide as pyro_guides
import pytest

from tests.checks.marks import IN_PYRO
from tests.fitting.models import CURVE, INPUTS, network

OWN_GUIDES = ["AutoNormal", "AutoDelta", "AutoDiagonalNormal"]


@pytest.mark.parametrize("name", ["MCDropoutGuide", "TridiagonalGuide"])
@IN_PYRO
def test_other_guides_of_the_house(host, name):
    guide = getattr(host.package, name)()
    data = host.array(INPUTS), host.array(CURVE.astype(np.float32))
    model = network(host, lambda out: host.dist.Normal(out, 2.0))
    found = host.package.fit(model, guide, *data, steps=20, progress_bar=False).by_draws
    assert found.note == ""
    assert abs(found.value - found.loss) < 4 * found.standard_error + 0.01 * found.loss


@pytest.mark.parametrize(
    ("host", "name"),
    [*(("pyro", name) for name in OWN_GUIDES), ("numpyro", "AutoNormal")],
    indirect=["host"],
)
def test_guides_of_the_host(host, name):
    if host.name == "pyro":
        guide = getattr(pyro_guides, name)(host.regression)
    else:
        from numpyro.infer import autoguide

        guide = getattr(autoguide, name)(host.regression)
    fit = host.package.fit(host.regression, guide, host.x, host.y, steps=40, progress_bar=False)
    found = fit.by_draws
    assert found.note == ""
    assert abs(found.value - found.loss) <= 4 * found.standard_error + 1e-4 * abs(found.loss)
