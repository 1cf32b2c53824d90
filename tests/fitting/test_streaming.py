"""Data that come one after the other: the posterior becomes the prior."""

from __future__ import annotations

import numpy as np
import numpyro
import pyro
import pytest

from tests.checks.marks import IN_PYRO
from tests.fitting.models import Y, fresh


def place(host):
    """The posterior is of one dimension, so that mean-field streaming loses nothing."""

    def model(y):
        where = host.language.sample("where", host.dist.Normal(0.0, 2.0))
        with host.language.plate("data", len(y)):
            host.language.sample("obs", host.dist.Normal(where, 1.0), obs=y)

    return model


def positive(host):
    def model(y):
        rate = host.language.sample("rate", host.dist.LogNormal(0.0, 1.0))
        with host.language.plate("data", len(y)):
            local = host.language.sample("local", host.dist.Normal(0.0, 1.0))
            host.language.sample("obs", host.dist.Normal(local, rate), obs=y)

    return model


@pytest.mark.parametrize(
    ("host", "same_guide"),
    [("pyro", False), ("pyro", True), ("numpyro", True)],
    indirect=["host"],
)
def test_two_parts_give_the_posterior_of_all_data(host, same_guide):
    model, options = place(host), {"method": "newton", "float64": True}
    whole = host.fit(model, host.y, **options)
    fresh(host.name)
    guide = host.package.DVIGuide()
    first = host.package.fit(model, guide, host.y[:60], **options)
    if not same_guide:
        pyro.clear_param_store()
        guide = host.package.DVIGuide()
    second = host.package.fit(model, guide, host.y[60:], prior=first, **options)
    for name, value in whole.params.items():
        np.testing.assert_allclose(second.params[name], value, rtol=1e-4)
    precision = 1 / 4 + len(Y)
    loc = next(value for name, value in second.params.items() if "loc" in name)
    np.testing.assert_allclose(loc, Y.sum() / precision, rtol=1e-4)


@IN_PYRO
def test_positive_sites_stream_and_local_ones_keep_their_prior(host):
    """The second part has another number of rows, and so of local sites."""
    model = positive(host)
    first = host.fit(model, host.y[:60], method="newton")
    pyro.clear_param_store()
    second = host.fit(model, host.y[60:], method="newton", prior=first)
    scales = [
        float(next(v for name, v in fit.params.items() if "rate" in name and "scale" in name))
        for fit in (first, second)
    ]
    assert second.converged
    assert scales[1] < scales[0]


@IN_PYRO
def test_guides_without_distributions_are_refused(host):
    module = numpyro.infer.autoguide if host.name == "numpyro" else pyro.infer.autoguide
    model = place(host)
    first = host.package.fit(model, module.AutoNormal(model), host.y, steps=2)
    pyro.clear_param_store()
    with pytest.raises(ValueError, match="AutoNormal does not give its posterior"):
        host.fit(model, host.y, prior=first)


@IN_PYRO
def test_a_checkpoint_knows_its_prior(host, tmp_path):
    model, path = place(host), tmp_path / "checkpoint"
    first = host.fit(model, host.y[:60], steps=5)
    other = host.fit(model, host.y[:60], steps=9)
    pyro.clear_param_store()
    host.fit(model, host.y[60:], steps=5, prior=first, checkpoint=path)
    pyro.clear_param_store()
    with pytest.raises(host.package.StoredFileError, match="another fit: prior was"):
        host.fit(model, host.y[60:], steps=5, prior=other, checkpoint=path)
    pyro.clear_param_store()
    assert host.package.load(path, model, host.package.DVIGuide(), host.y).steps == 5
