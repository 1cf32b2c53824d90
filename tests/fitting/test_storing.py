"""Trained parameters in files: saved, loaded, refused, and gone on from."""

import copy
import functools
import json
import pickle
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import linen
from numpyro.contrib.module import flax_module, random_flax_module

from tests.checks.marks import IN_PYRO
from tests.fitting.models import HOSTS, fresh


def saved(host, path, model=None, guide=None, **options):
    """A fit, saved."""
    model = model or host.regression
    guide = guide or host.package.DVIGuide()
    options = {"steps": 3, "by_draws": False, **options}
    fit = host.package.fit(model, guide, host.x, host.y, **options)
    of = fit if options.get("float64") else guide
    host.package.save(path, model, of, *host.given(fit.params), host.x, host.y)
    return fit


@functools.cache
def content(name):
    """The file of a trained regression, trained once, and its fit."""
    host = fresh(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trained.safetensors"
        fit = saved(host, path)
        return path.read_bytes(), fit


@pytest.fixture
def path(tmp_path, request):
    """The file of the host's regression."""
    found = tmp_path / "trained.safetensors"
    name = request.node.callspec.params.get("host", "pyro")
    found.write_bytes(content(name)[0])
    fresh(name)
    return found


def predicted(host, model, fit):
    found = host.package.predict(model, fit.guide, *host.given(fit.params), host.x)
    return np.asarray(found["obs"].mean)


@pytest.mark.parametrize("float64", [False, True])
def test_what_was_saved_comes_back_bit_for_bit(host, tmp_path, float64):
    path = tmp_path / "trained.safetensors"
    fit = saved(host, path, float64=float64)
    fresh(host.name)
    loaded = host.package.load(path, host.regression, host.package.DVIGuide(), host.x)
    assert loaded.params.keys() == fit.params.keys()
    for name, value in fit.params.items():
        assert loaded.params[name].dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(loaded.params[name]), np.asarray(value))
    if not float64:
        np.testing.assert_array_equal(
            predicted(host, host.regression, loaded), predicted(host, host.regression, fit)
        )


def test_a_model_in_double_precision_is_loaded_in_single(tmp_path):
    """Priors and data may be in double precision, whatever the default is."""
    host, path = copy.copy(fresh("pyro")), tmp_path / "trained.safetensors"
    host.x, host.y = host.x.double(), host.y.double()

    def model(x, y=None):
        weight = host.language.sample("weight", host.dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        return host.observe(x, host.dist.Normal(x @ weight, 0.5), y)

    fit = saved(host, path, model)
    loaded = host.package.load(path, model, host.package.DVIGuide(), host.x)
    np.testing.assert_array_equal(predicted(host, model, loaded), predicted(host, model, fit))


def test_the_file_is_plain_safetensors(host, path):
    """Other programs read it, and its header says what it holds."""
    from safetensors import safe_open

    fit = content(host.name)[1]
    with safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["pyro_moments"])["header"]
        shapes = sorted(file.get_tensor(name).shape for name in file.keys())  # noqa: SIM118
    assert shapes == sorted(tuple(value.shape) for value in fit.params.values())
    assert header["guide"] == "DVIGuide"
    assert header["model"]["weight"] == {"family": "Normal", "event": [3], "observed": False}
    assert header["model"]["obs"]["observed"]
    assert header["versions"].keys() > {"python", "pyro-moments", "numpy"}


def test_parameters_of_the_model_are_saved_too(host, tmp_path):
    def model(x, y=None):
        scale = host.language.param("scale", host.array(0.5))
        loc = x @ host.weight()
        return host.observe(x, host.dist.Normal(loc, scale), y)

    path = tmp_path / "trained.safetensors"
    fit = saved(host, path, model)
    fresh(host.name)
    loaded = host.package.load(path, model, host.package.DVIGuide(), host.x)
    assert float(loaded.params["scale"]) == float(fit.params["scale"]) != 0.5


def test_parameters_of_modules_are_saved_too(tmp_path):
    """Those of flax are dictionaries, of which random modules leave descriptions in place."""
    host, path = fresh("numpyro"), tmp_path / "trained.safetensors"

    def model(x, y=None):
        sizes = {"input_shape": (1, 3)}
        certain = flax_module("certain", linen.Dense(1), **sizes)
        prior = host.dist.Normal(0.0, 1.0)
        random = random_flax_module("random", linen.Dense(1), prior=prior, **sizes)
        loc = (certain(x) + random(x))[..., 0]
        return host.observe(x, host.dist.Normal(loc, 0.3), y)

    fit = saved(host, path, model)
    loaded = host.package.load(path, model, host.package.DVIGuide(), host.x)
    assert jax.tree.all(jax.tree.map(np.array_equal, fit.params, loaded.params))
    assert fit.params["certain$params"]["kernel"].shape == (3, 1)


def test_the_hosts_own_guides_are_saved(host, tmp_path):
    """They need the observations, as they take what is not observed for latent."""
    path = tmp_path / "trained.safetensors"
    fit = saved(host, path, guide=host.autoguide.AutoNormal(host.regression))
    fresh(host.name)
    guide = host.autoguide.AutoNormal(host.regression)
    loaded = host.package.load(path, host.regression, guide, host.x, host.y)
    for name, value in fit.params.items():
        np.testing.assert_array_equal(np.asarray(loaded.params[name]), np.asarray(value))


def other(host, **changes):
    """A model that differs."""

    def model(x, y=None):
        size = changes.get("size", 3)
        prior = host.dist.Normal(0.0, host.array(np.ones(size, np.float32))).to_event(1)
        prior = changes.get("prior", prior)
        weight = host.language.sample(changes.get("site", "weight"), prior)
        if "more" in changes:
            host.language.sample("more", host.dist.Normal(0.0, 1.0))
        loc = (x[:, :1] * weight).sum(-1) if size != 3 else x @ weight
        family = changes.get("family", host.dist.Normal)
        return host.observe(x, family(loc, 0.3), y)

    return model


FOREIGN = {
    "another name": (
        {"site": "slope"},
        r"another model: its model has the latent site 'weight'; this one has 'slope' besides",
    ),
    "one more": ({"more": True}, r"another model: this one has 'more' besides"),
    "another shape": (
        {"size": 4},
        r"another model: the event shape of site 'weight' is \[3\] there and \[4\] here",
    ),
    "another likelihood": (
        {"family": "Laplace"},
        r"another model: the distribution of site 'obs' is Normal there and Laplace here",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
@IN_PYRO
def test_another_model_is_refused(host, path, name):
    changes, message = FOREIGN[name]
    if "family" in changes:
        changes = {"family": getattr(host.dist, changes["family"])}
    with pytest.raises(host.package.StoredFileError, match=message):
        host.package.load(path, other(host, **changes), host.package.DVIGuide(), host.x)


def test_another_guide_or_host_is_refused(host, path):
    error = host.package.StoredFileError
    with pytest.raises(error, match="parameters of a DVIGuide, and the guide is a AutoNormal"):
        host.package.load(
            path, host.regression, host.autoguide.AutoNormal(host.regression), host.x, host.y
        )
    (foreign,) = (HOSTS[name] for name in HOSTS if name != host.name)
    with pytest.raises(error, match=f"was written by {host.package.__name__}, not by"):
        foreign.package.load(path, foreign.regression, foreign.package.DVIGuide(), foreign.x)


DAMAGED = {
    "empty": lambda good: b"",
    "truncated": lambda good: good[:-3],
    "damaged": lambda good: good[:-1] + bytes([good[-1] ^ 1]),
    "pickle": lambda good: pickle.dumps(good),
}


@pytest.mark.parametrize("cause", DAMAGED)
def test_damaged_and_foreign_files_are_refused(path, cause):
    """By both ways of reading; what else may be wrong with a file is among the tests of storage."""
    host = fresh("pyro")
    path.write_bytes(DAMAGED[cause](path.read_bytes()))
    for read in (
        lambda: host.package.load(path, host.regression, host.package.DVIGuide(), host.x),
        lambda: host.fit(host.regression, host.x, host.y, checkpoint=path),
    ):
        with pytest.raises(host.package.StoredFileError, match=f"{path.name}.*{cause}"):
            read()


def test_a_file_of_parameters_is_no_checkpoint(host, path):
    with pytest.raises(host.package.StoredFileError, match=r"was None, and is|no state of a fit"):
        host.fit(host.regression, host.x, host.y, checkpoint=path)
