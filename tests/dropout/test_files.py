"""A file of a guide by dropout belongs to guides that drop as much, in the same way."""

from __future__ import annotations

import json

import jax
import pytest

from moment_calculus.optimisation.storage.files import StoredFileError, read
from moment_calculus.optimisation.storage.trainings import settings_of
from tests.fitting.models import fresh


def saved(host, path, **options):
    guide, data = host.package.MCDropoutGuide(**options), (host.x, host.y)
    svi, given = host.package.SVI(host.regression, guide, host.package.DeterministicELBO()), ()
    if host.name == "numpyro":
        given = (svi.get_params(svi.init(jax.random.key(0), *data)),)
    else:
        svi.evaluate_loss(*data)
    host.package.save(path, host.regression, guide, *given, *data)
    fresh(host.name)


def test_another_posterior_is_refused(host, tmp_path):
    path = tmp_path / "trained.safetensors"
    saved(host, path, p=0.1)
    others = {
        "p of the guide was 0.1, and is 0.5 here": {"p": 0.5},
        "p of the guide was 0.1, and is {'weight': 0.1} here": {"p": {"weight": 0.1}},
        "noise of the guide was 'bernoulli', and is 'gaussian' here": {"noise": "gaussian"},
    }
    for cause, options in others.items():
        with pytest.raises(StoredFileError) as raised:
            host.package.load(path, host.regression, host.package.MCDropoutGuide(**options), host.x)
        assert cause in str(raised.value)
        assert "p=0.1" in raised.value.remedy
    same = host.package.MCDropoutGuide(p=0.1)
    assert host.package.load(path, host.regression, same, host.x).guide is same


def test_where_probabilities_are_learnt_they_are_parameters(host, tmp_path):
    """They begin elsewhere, and come from the file."""
    path = tmp_path / "trained.safetensors"
    saved(host, path, p=0.1, learn_p=True)
    guide = host.package.MCDropoutGuide(p=0.4, learn_p=True)
    fit = host.package.load(path, host.regression, guide, host.x)
    (p,) = (value for name, value in fit.params.items() if "probs" in name or name.endswith("_p"))
    assert float(p) == pytest.approx(0.1)
    cooler = host.package.MCDropoutGuide(learn_p=True, temperature=0.2)
    with pytest.raises(StoredFileError, match=r"temperature of the guide was 0\.1"):
        host.package.load(path, host.regression, cooler, host.x)


def test_settings_are_those_of_all_parts(host):
    dropout = host.package.MCDropoutGuide(p={"w": 0.2}, others="mean_field")
    settings = {"p": {"w": 0.2}, "noise": "bernoulli", "others": "mean_field", "learn_p": False}
    assert settings_of(dropout) == settings
    assert json.loads(json.dumps(settings)) == settings
    assert settings_of([host.package.DVIGuide(), dropout]) == {"1": settings}
    assert settings_of(host.package.DVIGuide()) == {}


def test_a_file_says_what_it_is_of(host, tmp_path):
    path = tmp_path / "trained.safetensors"
    saved(host, path, p=0.1)
    assert read(path)[0]["posterior"]["p"] == 0.1
