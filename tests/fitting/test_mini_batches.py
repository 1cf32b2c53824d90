"""Mini-batches: loaders, iterators and shuffled rows, and how they are scaled."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pyro
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from moment_inference.optimisation.batches import ShuffledBatches
from tests.checks.marks import IN_PYRO
from tests.fitting.models import ROWS, X, Y, fresh


def loader(**options):
    data = TensorDataset(torch.tensor(X), torch.tensor(Y))
    return DataLoader(data, **{"batch_size": 32, "shuffle": True, **options})


def test_a_loader_equals_a_loop_by_hand_in_pyro():
    """Bit for bit, with the same seeds."""
    host = fresh("pyro")
    guide = host.package.DVIGuide()
    svi = host.package.SVI(host.subsampled, guide, pyro.optim.Adam({"lr": 0.05}))
    losses = [svi.step(x, y) for batches in [loader()] for _ in range(4) for x, y in batches]
    expected = {name: value.clone() for name, value in guide.state_dict().items()}
    fresh("pyro")
    fit = host.fit(host.subsampled, loader(), epochs=4, learning_rate=0.05)
    assert fit.losses == losses
    found = fit.guide.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_loader_equals_a_loop_by_hand_in_numpyro():
    """Bit for bit, where fit scales the plate that the loop's model scales itself."""
    host = fresh("numpyro")
    svi = host.package.SVI(host.subsampled, host.package.DVIGuide(), numpyro.optim.Adam(0.05))
    state, losses, update = None, [], jax.jit(svi.update)
    batches = loader(generator=torch.Generator().manual_seed(1))
    for _ in range(4):
        for batch in batches:
            x, y = (jnp.asarray(part.numpy()) for part in batch)
            state = svi.init(jax.random.key(0), x, y) if state is None else state
            state, loss = update(state, x, y)
            losses.append(float(loss))
    data = loader(generator=torch.Generator().manual_seed(1))
    fit = host.fit(host.regression, data, epochs=4, learning_rate=0.05)
    assert fit.losses == losses
    for name, value in svi.get_params(state).items():
        np.testing.assert_array_equal(fit.params[name], value)


@IN_PYRO
def test_what_is_observed_counts_as_much_as_all_rows(host):
    """The losses of an epoch's mini-batches are those of all data, on average."""
    frozen = {"learning_rate": 0.0, "steps": 3}
    whole = host.fit(host.regression, host.x, host.y, **frozen)
    fresh(host.name)
    batches = host.fit(host.regression, host.x, host.y, batch_size=32, **frozen)
    assert np.mean(batches.losses) == pytest.approx(whole.loss, rel=1e-5)
    assert len(set(batches.losses)) == 3


@IN_PYRO
def test_mini_batches_reach_the_posterior_of_all_rows(host):
    exact = host.fit(host.regression, host.x, host.y, method="newton")
    fresh(host.name)
    rate = lambda step: 0.1 * 0.98**step  # noqa: E731
    found = host.fit(host.regression, host.x, host.y, batch_size=32, epochs=100, learning_rate=rate)
    np.testing.assert_allclose(host.location(found), host.location(exact), atol=0.02)


@IN_PYRO
@pytest.mark.parametrize("kind", ["dictionaries", "iterator", "iterable"])
def test_sources_of_mini_batches(host, kind):
    parts = [host.rows(start, start + 32) for start in (0, 32, 64)]
    if kind == "dictionaries":
        source = iter([{"x": x, "y": y} for x, y in parts])
    else:
        source = iter(parts) if kind == "iterator" else Repeated(parts)
    fit = host.fit(host.regression, source, rows=ROWS, steps=5)
    if kind == "iterable":
        assert (fit.steps, fit.reason) == (5, "ran 5 steps")
    else:
        assert (fit.steps, fit.converged) == (3, False)
        assert fit.reason == "stopped: there were no more mini-batches after 3"


class Repeated:
    """Some mini-batches, in every epoch."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


REFUSED = {
    "unknown rows": (
        lambda host: host.fit(host.regression, iter([host.rows(0, 32)])),
        r"plate 'data' of the mini-batch's 32 rows.*pass rows=",
    ),
    "no plate": (
        lambda host: host.fit(bare(host), host.x, host.y, batch_size=32),
        r"not clear which plate around site 'obs' is theirs \(there: none\)",
    ),
    "another scale": (
        lambda host: host.fit(scaled(host), host.x, host.y, batch_size=32),
        r"site 'obs' is scaled by 2, which is neither 1 nor the 3 of 32 of 96 rows",
    ),
    "latent rows": (
        lambda host: host.fit(local(host), host.x, host.y, batch_size=32),
        r"latent site 'local' is in the plate 'data'.*subsample the plate",
    ),
    "other lengths": (
        lambda host: host.fit(host.regression, host.x, host.y[:5], batch_size=3),
        r"as many rows in all of them, got .*\[96, 3\], .*\[5\]",
    ),
    "too many rows": (
        lambda host: host.fit(host.regression, host.x, host.y, batch_size=97),
        r"batch_size must be between 1 and 96 rows, got 97",
    ),
    "newton": (
        lambda host: host.fit(host.regression, host.x, host.y, batch_size=3, method="newton"),
        r"method='newton' minimises one loss of all data: batch_size goes with method='adam'",
    ),
    "a loader and lbfgs": (
        lambda host: host.fit(host.regression, loader(), method="lbfgs"),
        r"a loader makes mini-batches itself, of method='adam'",
    ),
    "a loader and more": (
        lambda host: host.fit(host.regression, loader(), host.y),
        r"a loader of mini-batches is the only positional argument",
    ),
    "steps and epochs": (
        lambda host: host.fit(host.regression, loader(), steps=1, epochs=1),
        r"steps and epochs both say how long to train",
    ),
    "epochs of all data": (
        lambda host: host.fit(host.regression, host.x, host.y, epochs=1),
        r"epochs is of mini-batches: give a batch_size or a loader",
    ),
    "an optimiser and a rate": (
        lambda host: host.fit(host.regression, host.x, host.y, optimiser=1, learning_rate=1),
        r"learning_rate is of the default optimiser",
    ),
    "nothing held out": (
        lambda host: host.fit(host.regression, host.x, host.y, held_out=(host.x,)),
        r"observes nothing with these arguments",
    ),
}


def bare(host):
    def model(x, y):
        observed = host.dist.Normal(x @ host.weight(), 0.3).to_event(1)
        host.language.sample("obs", observed, obs=y)

    return model


def scaled(host):
    return host.handlers.scale(host.regression, scale=2.0)


def local(host):
    def model(x, y):
        with host.language.plate("data", len(x)):
            place = host.language.sample("local", host.dist.Normal(0.0, 1.0))
            host.language.sample("obs", host.dist.Normal(place, 1.0), obs=y)

    return model


@pytest.mark.parametrize("name", REFUSED)
@IN_PYRO
def test_what_is_not_clear_is_refused(host, name):
    attempt, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        attempt(host)


@IN_PYRO
def test_a_plate_is_named_where_two_are_as_long(host):
    def model(x, y):
        weight = host.weight()
        data, draws = (
            host.language.plate("data", 32, dim=-1),
            host.language.plate("more", 32, dim=-2),
        )
        with data, draws:
            host.language.sample("obs", host.dist.Normal(x @ weight, 0.3), obs=y)

    y = host.array(np.tile(Y[:, None], (1, 32)))
    frozen = {"learning_rate": 0.0, "steps": 1, "batch_size": 32}
    with pytest.raises(ValueError, match=r"there: '(data|more)' \(32\), '(data|more)' \(32\)"):
        host.fit(model, host.x, y, **frozen)
    fresh(host.name)
    assert np.isfinite(host.fit(model, host.x, y, plate="data", **frozen).loss)


@IN_PYRO
def test_rows_that_fit_scales_are_a_subsample(host):
    """For a power of each datum, too, whose scale is outside of it."""
    options = {"objective": host.package.BBAlphaELBO(0.5), "steps": 3, "batch_size": 32}
    losses = host.fit(host.regression, host.x, host.y, **options).losses
    fresh(host.name)
    expected = host.fit(host.subsampled, host.x, host.y, **options).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def test_shuffled_rows_cover_an_epoch():
    """In an order that follows from seed and epoch."""
    take = lambda part, indices: part[indices]  # noqa: E731
    source = ShuffledBatches((X,), {"y": Y}, 5, 0, take)
    epochs = [
        np.concatenate([source.indices(19 * epoch + step) for step in range(19)])
        for epoch in range(2)
    ]
    for rows in epochs:
        assert len({*rows}) == 95
    assert (epochs[0] != epochs[1]).any()
    (x,), named = source.arguments(20)
    np.testing.assert_array_equal(x, X[epochs[1][5:10]])
    np.testing.assert_array_equal(named["y"], Y[epochs[1][5:10]])
