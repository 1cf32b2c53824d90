"""A loaded fit predicts any number of rows; a file knows the constants of its model."""

import json

import numpy as np
import pytest
from safetensors import safe_open

from tests.fitting.models import fresh


def counts(host, prior=1.0, trials=None, *, learns_scale=False):
    """A regression of counts: trials are a constant of the model, or an argument."""

    def model(x, *rest):
        if learns_scale:
            positive = host.dist.constraints.positive
            scale = host.language.param("scale", host.array(prior), constraint=positive)
        else:
            scale = prior
        weight = host.language.sample(
            "weight", host.dist.Normal(0.0, scale).expand([3]).to_event(1)
        )
        given, y = (rest[:1], rest[1:]) if trials is None else ((trials,), rest)
        with host.language.plate("rows", len(x)):
            fn = host.dist.Binomial(given[0], logits=x @ weight)
            return host.language.sample("obs", fn, obs=y[0] if y else None)

    return model


def saved(host, path, model, *data):
    fit = host.fit(model, *data, steps=3)
    host.package.save(path, model, fit, *data)
    return fit


@pytest.fixture
def counted(host):
    """Inputs, trials of every row, and counts."""
    fresh(host.name)
    kind = np.float32 if host.name == "pyro" else np.int32  # as the frameworks want counts
    return host.x, *(host.array(np.full(len(host.x), number, kind)) for number in (5, 2))


@pytest.mark.parametrize("rows", [1, 7, 96])
def test_a_fit_loaded_with_inputs_predicts_any_number_of_rows(host, counted, tmp_path, rows):
    x, _, y = counted
    model = counts(host, trials=5)
    fit = saved(host, tmp_path / "fit", model, x, y)
    fresh(host.name)
    for inputs in (x, x[:7]):
        loaded = host.package.load(tmp_path / "fit", model, host.package.DVIGuide(), inputs)
        predicted, expected = (host.package.predict(model, f, x[:rows]) for f in (loaded, fit))
        np.testing.assert_array_equal(predicted["obs"].mean, expected["obs"].mean)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"prior": 2.0}, "scale of site 'weight' is 1 there and 2 here"),
        ({"trials": 6}, "total_count of site 'obs' is 5 there and 6 here"),
    ],
)
def test_another_constant_of_the_model_is_refused(host, counted, tmp_path, changes, cause):
    x, _, y = counted
    saved(host, tmp_path / "fit", counts(host, trials=5), x, y)
    fresh(host.name)
    model = counts(host, **{"trials": 5, **changes})
    with pytest.raises(host.package.StoredFileError, match=cause):
        host.package.load(tmp_path / "fit", model, host.package.DVIGuide(), x)


def test_numbers_of_the_data_and_starts_of_parameters_are_no_constants(host, counted, tmp_path):
    x, trials, y = counted
    saved(host, tmp_path / "fit", counts(host, 1.0, learns_scale=True), x, trials, y)
    fresh(host.name)
    model = counts(host, 2.0, learns_scale=True)
    guide = host.package.DVIGuide()
    host.package.load(tmp_path / "fit", model, guide, x[:1], trials[:1] + 1)


def header_of(path):
    with safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["pyro_moments"])["header"]


def test_a_fit_is_saved_without_its_data(host, counted, tmp_path):
    """By what it keeps of the training; the file, and one of the loaded fit, are the same."""
    x, _, y = counted
    model = counts(host, prior=1.5, trials=5)
    fit = saved(host, tmp_path / "with", model, x, y)
    host.package.save(tmp_path / "without", model, fit)
    fresh(host.name)
    loaded = host.package.load(tmp_path / "without", model, host.package.DVIGuide(), x[:5])
    loaded.save(tmp_path / "again")
    headers = [header_of(tmp_path / name) for name in ("with", "without", "again")]
    assert headers[0] == headers[1] == headers[2]
    assert headers[0]["constants"]["weight"] == {"loc": [0.0], "scale": [1.5]}
    if host.name == "pyro":  # without compiling
        found, expected = (f.predict(x[:7])["obs"].mean for f in (loaded, fit))
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
        host.package.linear_response(model, loaded, x, y, tolerance=np.inf)
    with pytest.raises(host.package.StoredFileError, match=r"scale of site 'weight' is 1\.5 there"):
        host.package.load(
            tmp_path / "without", counts(host, trials=5), host.package.DVIGuide(), x[:5]
        )


def test_what_arguments_give_is_no_constant_of_a_file_without_data(host, tmp_path):
    """The trials here are an argument; a mini-batch of a loader tells the sites, too."""
    kind = np.float32 if host.name == "pyro" else np.int32
    x = host.array(np.asarray(host.x)[:8])
    batch = x, host.array(np.full(8, 5, kind)), host.array(np.full(8, 2, kind))
    fit = host.fit(counts(host), [batch].__iter__(), steps=1, rows=8)
    fit.save(tmp_path / "fit")
    assert "total_count" not in header_of(tmp_path / "fit")["constants"]["obs"]
    guide = host.package.DVIGuide()
    host.package.load(tmp_path / "fit", counts(host), guide, x, batch[1] + 1)


def test_a_fit_that_does_not_know_its_sites_asks_for_data(host, tmp_path):
    fit = host.package.Fit(guide=host.package.DVIGuide(), params={"a": 1}, seconds={})
    with pytest.raises(TypeError, match=r"save got 0 argument.*pass the model's own arguments"):
        host.package.save(tmp_path / "fit", host.regression, fit)
