"""Trained parameters in files: saved, loaded, refused, and gone on from."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import numpyro
import pyro
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.fitting.models import HOSTS, X, Y, fresh


@pytest.fixture(params=HOSTS)
def host(request):
    return fresh(request.param)


def saved(host, path, model=None, guide=None, **options):
    """A fit, saved."""
    model = model or host.regression
    guide = guide or host.package.DVIGuide()
    fit = host.package.fit(model, guide, host.x, host.y, steps=20, **options)
    given = (fit.params,) if host.name == "numpyro" else ()
    host.package.save(path, model, guide, *given, host.x, host.y)
    return fit


def predicted(host, model, fit):
    given = (fit.params,) if host.name == "numpyro" else ()
    return np.asarray(host.package.predict(model, fit.guide, *given, host.x)["obs"].mean)


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


def test_the_file_is_plain_safetensors(host, tmp_path):
    """Other programs read it, and its header says what it holds."""
    from safetensors import safe_open

    path = tmp_path / "trained.safetensors"
    fit = saved(host, path)
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
        with host.language.plate("data", len(x)):
            return host.language.sample("obs", host.dist.Normal(loc, scale), obs=y)

    path = tmp_path / "trained.safetensors"
    fit = saved(host, path, model)
    fresh(host.name)
    loaded = host.package.load(path, model, host.package.DVIGuide(), host.x)
    assert float(loaded.params["scale"]) == float(fit.params["scale"]) != 0.5


def test_the_hosts_own_guides_are_saved(host, tmp_path):
    """They need the observations, as they take what is not observed for latent."""
    module = numpyro.infer.autoguide if host.name == "numpyro" else pyro.infer.autoguide
    path = tmp_path / "trained.safetensors"
    fit = saved(host, path, guide=module.AutoNormal(host.regression))
    fresh(host.name)
    guide = module.AutoNormal(host.regression)
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
        with host.language.plate("data", len(x)):
            loc = (x[:, :1] * weight).sum(-1) if size != 3 else x @ weight
            family = changes.get("family", host.dist.Normal)
            return host.language.sample("obs", family(loc, 0.3), obs=y)

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
def test_another_model_is_refused(host, tmp_path, name):
    path = tmp_path / "trained.safetensors"
    saved(host, path)
    fresh(host.name)
    changes, message = FOREIGN[name]
    if "family" in changes:
        changes = {"family": getattr(host.dist, changes["family"])}
    with pytest.raises(host.package.StoredFileError, match=message):
        host.package.load(path, other(host, **changes), host.package.DVIGuide(), host.x)


def test_another_guide_or_host_is_refused(host, tmp_path):
    path = tmp_path / "trained.safetensors"
    saved(host, path)
    module = numpyro.infer.autoguide if host.name == "numpyro" else pyro.infer.autoguide
    error = host.package.StoredFileError
    with pytest.raises(error, match="parameters of a DVIGuide, and the guide is a AutoNormal"):
        host.package.load(path, host.regression, module.AutoNormal(host.regression), host.x, host.y)
    (foreign,) = (HOSTS[name] for name in HOSTS if name != host.name)
    with pytest.raises(error, match=f"was written by {host.package.__name__}, not by"):
        foreign.package.load(path, foreign.regression, foreign.package.DVIGuide(), foreign.x)


class Executed:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


def header_of(content):
    (length,) = struct.unpack("<Q", content[:8])
    return length, json.loads(content[8 : 8 + length])


def rewritten(content, change):
    """The file with a changed record and its old digest."""
    length, header = header_of(content)
    record = json.loads(header["__metadata__"]["pyro_moments"])
    change(record)
    header["__metadata__"]["pyro_moments"] = json.dumps(record)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


DAMAGED = {
    "empty": lambda good: b"",
    "cut in the length": lambda good: good[:4],
    "cut in the header": lambda good: good[:100],
    "cut in the numbers": lambda good: good[:-3],
    "one more byte": lambda good: good + b"0",
    "a flipped bit": lambda good: good[:-1] + bytes([good[-1] ^ 1]),
    "zeros": lambda good: bytes(len(good)),
    "text": lambda good: b"weights: 1, 2, 3\n" * 9,
    "json": lambda good: b'{"weight": [1, 2, 3]}' * 9,
    "a pickle": lambda good: pickle.dumps(Executed()),
    "an absurd length": lambda good: struct.pack("<Q", 2**60) + good[8:],
    "a newer version": lambda good: rewritten(good, lambda record: record.update(format=99)),
    "no version": lambda good: rewritten(good, lambda record: record.pop("format")),
    "no digest": lambda good: rewritten(good, lambda record: record.pop("digest")),
    "another header": lambda good: rewritten(good, lambda record: record.update(header={})),
    "another guide's name": lambda good: rewritten(
        good, lambda record: record["header"].update(guide="Evil")
    ),
    "a list": lambda good: rewritten(good, lambda record: record.update(header=[])),
}
CAUSES = {
    "a flipped bit": "damaged",
    "a newer version": "newer",
    "another guide's name": "damaged",
    "cut in the numbers": "truncated",
    "cut in the header": "truncated",
    "a pickle": "pickle",
    "empty": "empty",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_and_foreign_files_are_refused(tmp_path, monkeypatch, name):
    """By both ways of reading, without executing anything of theirs."""
    host = fresh("numpyro")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trained.safetensors"
    saved(host, path)
    path.write_bytes(DAMAGED[name](path.read_bytes()))
    for read in (
        lambda: host.package.load(path, host.regression, host.package.DVIGuide(), host.x),
        lambda: host.fit(host.regression, host.x, host.y, checkpoint=path),
    ):
        with pytest.raises(
            host.package.StoredFileError, match=CAUSES.get(name, path.name)
        ) as error:
            read()
        assert str(path) in str(error.value)
    assert not (tmp_path / "executed").exists()


SOURCES = {
    "all data": lambda host: (((host.x, host.y)), {}),
    "shuffled rows": lambda host: ((host.x, host.y), {"batch_size": 32, "kl_warm_up": 20}),
    "a loader": lambda host: (
        (
            DataLoader(
                TensorDataset(torch.tensor(X), torch.tensor(Y)),
                batch_size=32,
                shuffle=True,
                generator=torch.Generator().manual_seed(2) if host.name == "numpyro" else None,
            ),
        ),
        {},
    ),
    "lbfgs": lambda host: ((host.x, host.y), {"method": "lbfgs"}),
    "newton": lambda host: ((host.x, host.y), {"method": "newton"}),
    "held out": lambda host: (host.rows(0, 64), {"held_out": host.rows(64, 96)}),
}


class Interrupted(Exception):
    """What ends a training in its midst."""


@pytest.mark.parametrize("name", SOURCES)
def test_an_interrupted_fit_ends_as_if_it_had_not_been(host, tmp_path, name):
    """Parameters and losses are equal bit for bit."""
    path, every = tmp_path / "checkpoint", 3 if name in ("newton", "lbfgs") else 16

    def interrupt(progress):
        if progress.step > 2 * every:
            raise Interrupted

    def train(**options):
        fresh(host.name)
        data, settings = SOURCES[name](host)
        options = {"steps": 100, "every": every, **settings, **options}
        return host.fit(host.regression, *data, **options)

    whole = train(callback=lambda progress: None)
    with pytest.raises(Interrupted):
        train(checkpoint=path, callback=interrupt)
    resumed = train(checkpoint=path)
    again = train(checkpoint=path)  # nothing is left to be done
    for fit in (resumed, again):
        assert (fit.losses, fit.reason, fit.steps) == (whole.losses, whole.reason, whole.steps)
        assert fit.held_out == whole.held_out
        for key, value in whole.params.items():
            np.testing.assert_array_equal(np.asarray(fit.params[key]), np.asarray(value))
    fresh(host.name)
    loaded = host.package.load(path, host.regression, host.package.DVIGuide(), host.x)
    np.testing.assert_array_equal(host.location(loaded), host.location(whole))


def test_checkpoints_of_another_fit_are_refused(host, tmp_path):
    path = tmp_path / "checkpoint"
    options = {"steps": 20, "every": 10, "checkpoint": path}
    host.fit(host.regression, host.x, host.y, **options)
    error = host.package.StoredFileError
    for changes, message in (
        ({"learning_rate": 0.5}, "learning_rate was None, and is 0.5 now"),
        ({"every": 5}, "every was 10, and is 5 now"),
    ):
        fresh(host.name)
        with pytest.raises(error, match=f"checkpoint of another fit: {message}"):
            host.fit(host.regression, host.x, host.y, **{**options, **changes})
    fresh(host.name)
    with pytest.raises(error, match="checkpoint of another fit: data was"):
        host.fit(host.regression, host.x, host.y + 1, **options)
    fresh(host.name)
    longer = host.fit(host.regression, host.x, host.y, **{**options, "steps": 40})
    assert longer.steps == 40


def test_a_file_of_parameters_is_no_checkpoint(host, tmp_path):
    path = tmp_path / "trained.safetensors"
    saved(host, path)
    fresh(host.name)
    with pytest.raises(host.package.StoredFileError, match=r"was None, and is|no state of a fit"):
        host.fit(host.regression, host.x, host.y, checkpoint=path)


class Backwards(torch.utils.data.Sampler):
    """A sampler of the user's."""

    def __iter__(self):
        return iter(range(95, -1, -1))

    def __len__(self):
        return 96


def test_orders_that_cannot_be_restored_are_refused(host, tmp_path):
    data = TensorDataset(torch.tensor(X), torch.tensor(Y))
    options = {"checkpoint": tmp_path / "checkpoint", "steps": 3}
    with pytest.raises(ValueError, match="order of the sampler Backwards cannot be restored"):
        host.fit(host.regression, DataLoader(data, 32, sampler=Backwards()), **options)
    with pytest.raises(ValueError, match=r"order of a list_iterator cannot be restored"):
        host.fit(host.regression, iter([host.rows(0, 32)]), rows=96, **options)
    if host.name == "numpyro":
        with pytest.raises(ValueError, match="give it a generator of its own"):
            host.fit(host.regression, DataLoader(data, 32, shuffle=True), **options)


KILLED = """
import sys, time
import numpy as np
from tests.fitting.models import fresh
host = fresh(sys.argv[1])
slowly = lambda progress: (print(progress.step, flush=True), time.sleep(0.05))[0]
options = {"batch_size": 32, "steps": 60, "every": 4, "checkpoint": sys.argv[2]}
fit = host.fit(host.regression, host.x, host.y, callback=slowly, **options)
np.save(sys.argv[3], np.concatenate([host.location(fit), fit.losses]))
"""


@pytest.mark.slow
def test_a_killed_fit_ends_as_if_it_had_not_been(host, tmp_path):
    """SIGKILL at random moments, as often as it takes."""
    random = np.random.default_rng(0)
    whole = host.fit(host.regression, host.x, host.y, batch_size=32, steps=60, every=4)
    result, kills = tmp_path / "result.npy", 0
    command = [sys.executable, "-c", KILLED, host.name, tmp_path / "checkpoint", result]
    while not result.exists():
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        process.stdout.readline()  # it has begun
        if kills < 3:
            time.sleep(random.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    expected = np.concatenate([host.location(whole), whole.losses])
    np.testing.assert_array_equal(np.load(result), expected)
    assert kills == 3
    assert jnp.isfinite(expected).all()
