"""Fits that are interrupted and go on from a checkpoint."""

import signal
import subprocess
import sys
import time

import numpy as np
import pyro
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.checks.marks import IN_PYRO
from tests.fitting.models import X, Y, fresh

SOURCES = {
    "all data": lambda host: (((host.x, host.y)), {}),
    "shuffled rows": lambda host: ((host.x, host.y), {"batch_size": 32, "kl_warm_up": 6}),
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


@pytest.mark.parametrize(
    ("host", "name"),
    [*(("pyro", name) for name in SOURCES), ("numpyro", "shuffled rows")],
    indirect=["host"],
)
def test_an_interrupted_fit_ends_as_if_it_had_not_been(host, tmp_path, name):
    """Parameters and losses are equal bit for bit."""
    path, every = tmp_path / "checkpoint", 3 if name in ("newton", "lbfgs") else 4

    def interrupt(progress):
        if progress.step >= 2 * every:
            raise Interrupted

    def train(**options):
        fresh(host.name)
        data, settings = SOURCES[name](host)
        options = {"steps": 10 if every == 4 else 100, "every": every, **settings, **options}
        return host.fit(host.regression, *data, **options)

    whole = train(callback=lambda progress: None)
    with pytest.raises(Interrupted):
        train(checkpoint=path, callback=interrupt)
    resumed = train(checkpoint=path)
    fits = [resumed]
    if host.name == "pyro":
        fits.append(train(checkpoint=path))  # nothing is left to be done
    for fit in fits:
        assert (fit.losses, fit.reason, fit.steps) == (whole.losses, whole.reason, whole.steps)
        assert fit.held_out == whole.held_out
        for key, value in whole.params.items():
            np.testing.assert_array_equal(np.asarray(fit.params[key]), np.asarray(value))
    fresh(host.name)
    loaded = host.package.load(path, host.regression, host.package.DVIGuide(), host.x)
    np.testing.assert_array_equal(host.location(loaded), host.location(whole))


@IN_PYRO
def test_a_fit_that_a_callback_ended_goes_on(host, tmp_path):
    options = {"steps": 8, "every": 2, "checkpoint": tmp_path / "checkpoint"}
    data = host.regression, host.x, host.y
    first = host.fit(*data, callback=lambda progress: progress.step == 4, **options)
    fresh(host.name)
    second = host.fit(*data, **options)
    assert (first.steps, second.steps, second.reason) == (4, 8, "ran 8 steps")
    assert second.losses[:4] == first.losses[:4]


@IN_PYRO
def test_checkpoints_of_another_fit_are_refused(host, tmp_path):
    path = tmp_path / "checkpoint"
    options = {"steps": 2, "every": 2, "checkpoint": path}
    host.fit(host.regression, host.x, host.y, **options)
    error = host.package.StoredFileError
    for changes, message in (
        ({"learning_rate": 0.5}, "learning_rate was None, and is 0.5 now"),
        ({"every": 1}, "every was 2, and is 1 now"),
    ):
        fresh(host.name)
        with pytest.raises(error, match=f"checkpoint of another fit: {message}"):
            host.fit(host.regression, host.x, host.y, **{**options, **changes})
    fresh(host.name)
    with pytest.raises(error, match="checkpoint of another fit: data was"):
        host.fit(host.regression, host.x, host.y + 1, **options)


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
import numpy as np, pyro, pyro.distributions as dist, torch
import pyro_moments
def regression(x, y=None):
    weight = pyro.sample("weight", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("data", len(x)):
        return pyro.sample("obs", dist.Normal(x @ weight, 0.3), obs=y)
data = map(torch.tensor, np.load(sys.argv[1]).values())
options = {"batch_size": 32, "steps": 60, "every": 4, "by_draws": False}
slowly = lambda progress: (print(progress.step, flush=True), time.sleep(0.2))[0]
pyro_moments.fit(
    regression, pyro_moments.DVIGuide(), *data, callback=slowly, checkpoint=sys.argv[2], **options
)
"""


def test_a_killed_fit_ends_as_if_it_had_not_been(tmp_path):
    """SIGKILL at a random moment, in Pyro; both hosts write checkpoints alike."""
    host, random = fresh("pyro"), np.random.default_rng(0)
    options = {"batch_size": 32, "steps": 60, "every": 4}
    whole = host.fit(host.regression, host.x, host.y, **options)
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    command = [sys.executable, "-c", KILLED, tmp_path / "data.npz", tmp_path / "checkpoint"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    for _ in range(2):
        process.stdout.readline()  # the first checkpoint is written
    time.sleep(random.uniform(0, 0.3))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    fresh("pyro")
    steps = []
    resumed = host.fit(
        host.regression,
        host.x,
        host.y,
        checkpoint=tmp_path / "checkpoint",
        callback=lambda progress: steps.append(progress.step),
        **options,
    )
    assert 4 < steps[0] < 60  # it went on from where it was killed
    assert (resumed.losses, resumed.steps) == (whole.losses, 60)
    np.testing.assert_array_equal(host.location(resumed), host.location(whole))
    assert np.isfinite(whole.losses).all()


def place(host):
    """The posterior is of one dimension, so that mean-field streaming loses nothing."""

    def model(y):
        where = host.language.sample("where", host.dist.Normal(0.0, 2.0))
        host.observe(y, host.dist.Normal(where, 1.0), y)

    return model


def positive(host):
    def model(y):
        rate = host.language.sample("rate", host.dist.LogNormal(0.0, 1.0))
        with host.language.plate("data", len(y)):
            local = host.language.sample("local", host.dist.Normal(0.0, 1.0))
            host.language.sample("obs", host.dist.Normal(local, rate), obs=y)

    return model


@pytest.mark.parametrize(
    ("host", "same_guide"), [("pyro", False), ("pyro", True), ("numpyro", True)], indirect=["host"]
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
    model = place(host)
    first = host.package.fit(model, host.autoguide.AutoNormal(model), host.y, steps=2)
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
