"""What a training looks at on the way: held-out data, warm-up, callbacks, schedules, restarts."""

import functools

import numpy as np
import numpyro
import optax
import pyro
import pytest
import torch

from moment_inference.optimisation.options import Options
from numpyro_moments.fitting import fit as numpyro_fit
from pyro_moments.fitting import fit as pyro_fit
from tests.checks.marks import IN_PYRO
from tests.fitting.models import ROWS, fresh


def test_the_best_parameters_on_held_out_data_are_kept(host):
    train, held_out = host.rows(0, 64), host.rows(64, ROWS)
    seen = {}
    fit = host.fit(
        host.regression,
        *train,
        held_out=held_out,
        steps=400,
        every=20,
        patience=2,
        learning_rate=0.3,
        callback=lambda progress: seen.update({progress.step: progress.params}),
    )
    assert fit.reason.startswith("stopped: the held-out log-likelihood did not rise in 2 eval")
    assert fit.steps == fit.best + 40 < 400
    assert max(fit.held_out.values()) == fit.held_out[fit.best]
    for name, value in seen[fit.best].items():
        np.testing.assert_array_equal(np.asarray(fit.params[name]), np.asarray(value))
    scored = score(host, fit, held_out)
    assert scored == pytest.approx(fit.held_out[fit.best], rel=1e-5)


def score(host, fit, data):
    """Log predictive density of held-out rows, by ``predict``."""
    x, y = data
    found = host.package.predict(host.regression, fit.guide, *host.given(fit.params), x)
    return float(found["obs"].log_prob(y).sum())


@IN_PYRO
def test_deterministic_methods_look_at_held_out_data_too(host):
    fit = host.fit(
        host.regression, *host.rows(0, 64), held_out=host.rows(64, ROWS), method="lbfgs", every=5
    )
    assert list(fit.held_out) == [*range(5, fit.steps + 1, 5)] + [fit.steps] * (fit.steps % 5 > 0)
    assert score(host, fit, host.rows(64, ROWS)) == pytest.approx(
        max(fit.held_out.values()), rel=1e-4
    )


def test_the_kl_divergence_warms_up(host):
    """Without it the loss is the expected negative log-likelihood, whose weight does not change."""
    terms = []
    frozen = {"learning_rate": 0.0, "steps": 8, "every": 4}
    note = lambda progress: terms.append(progress.terms)  # noqa: E731
    fit = host.fit(host.regression, host.x, host.y, kl_warm_up=(2, 4), callback=note, **frozen)
    weights = [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    expected = [-terms[0]["obs"] - weight * terms[0]["weight"] for weight in weights]
    np.testing.assert_allclose(fit.losses[:8], expected, rtol=1e-5)
    assert terms[0]["weight"] < 0
    assert terms[0] == pytest.approx(terms[1], rel=1e-5), "terms carry no weight of the KL"


@IN_PYRO
def test_options_may_be_passed_as_one_object(host):
    module = {"numpyro": numpyro_fit, "pyro": pyro_fit}[host.name]
    options = Options(steps=3, learning_rate=0.1, by_draws=False)
    guides = [host.package.DVIGuide() for _ in range(2)]
    one = module.fit_with(options, host.regression, guides[0], (host.x, host.y), {})
    fresh(host.name)
    data = host.x, host.y
    other = host.package.fit(
        host.regression, guides[1], *data, steps=3, learning_rate=0.1, by_draws=False
    )
    assert one.losses == other.losses


@IN_PYRO
def test_a_callback_ends_the_training(host):
    steps = []

    def callback(progress):
        steps.append((progress.step, progress.loss))
        return progress.step == 20

    fit = host.fit(host.regression, host.x, host.y, every=10, callback=callback)
    assert [step for step, _ in steps] == [10, 20]
    assert fit.reason == "stopped: the callback asked for it"
    assert fit.steps == 20


@IN_PYRO
def test_adam_says_when_the_loss_stays(host):
    fit = host.fit(host.regression, host.x, host.y, every=20, tolerance=1e-3, learning_rate=0.2)
    assert fit.converged
    assert fit.change <= 1e-3
    assert fit.reason.startswith("converged: the mean loss of 20 steps changed by")


def test_a_rate_that_falls_to_zero_ends_the_changes(host):
    rate = lambda step: 0.1 * (step < 5)  # noqa: E731
    fit = host.fit(host.regression, host.x, host.y, steps=10, learning_rate=rate)
    assert len(set(fit.losses[:6])) == 6
    assert len(set(fit.losses[5:])) == 1


OPTIMISERS = {
    "numpyro": {
        "numpyro": lambda: {"optimiser": numpyro.optim.ClippedAdam(0.05, clip_norm=1.0)},
        "optax": lambda: {
            "optimiser": optax.chain(
                optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.1, 30))
            )
        },
    },
    "pyro": {
        "pyro": lambda: {"optimiser": pyro.optim.ClippedAdam({"lr": 0.05})},
        "schedule of pyro": lambda: {
            "optimiser": pyro.optim.ExponentialLR(
                {"optimizer": torch.optim.Adam, "optim_args": {"lr": 0.1}, "gamma": 0.95}
            )
        },
        "torch": lambda: {
            "optimiser": functools.partial(torch.optim.AdamW, lr=0.05),
            "scheduler": functools.partial(torch.optim.lr_scheduler.StepLR, step_size=10),
        },
    },
}


@pytest.mark.parametrize(
    ("host", "name"),
    [(host, name) for host, options in OPTIMISERS.items() for name in options],
    indirect=["host"],
)
def test_the_optimisers_and_schedules_of_the_hosts(host, name, tmp_path):
    """They train, and go on from a checkpoint as if nothing had happened."""
    options = lambda: {**OPTIMISERS[host.name][name](), "every": 10}  # noqa: E731
    path = tmp_path / "checkpoint"
    whole = host.fit(host.regression, host.x, host.y, steps=30, **options())
    fresh(host.name)
    host.fit(host.regression, host.x, host.y, steps=20, checkpoint=path, **options())
    fresh(host.name)
    resumed = host.fit(host.regression, host.x, host.y, steps=30, checkpoint=path, **options())
    assert whole.losses[-1] < whole.losses[0]
    assert resumed.losses == whole.losses
    np.testing.assert_array_equal(host.location(resumed), host.location(whole))


@pytest.mark.parametrize(
    ("host", "method"),
    [("pyro", "adam"), ("pyro", "lbfgs"), ("numpyro", "lbfgs")],
    indirect=["host"],
)
def test_the_best_of_several_restarts_is_kept(host, method):
    """From starts of which one cannot be left, as the network's output is zero there."""
    language, dist = host.language, host.dist

    def two_modes(y):
        place = language.sample("place", dist.Normal(0.0, 10.0))
        with language.plate("data", len(y)):
            far = language.sample("obs", dist.Normal(place**2, 1.0), obs=y)
        return far

    fit = host.fit(two_modes, host.y**2, restarts=3, steps=10, method=method)
    if host.name == "numpyro":
        single = host.fit(two_modes, host.y**2, steps=10, method=method)
        assert fit.loss <= single.loss * (1 + 1e-5)
    else:
        guide = host.package.DVIGuide()
        assert host.package.fit(two_modes, guide, host.y**2, restarts=2, steps=3).guide is guide
        assert guide.median()["place"].isfinite()
        trained = host.package.DVIGuide()
        host.package.SVI(two_modes, trained, host.package.DeterministicELBO()).step(host.y**2)
        with pytest.raises(ValueError, match="the guide has some: give a new one"):
            host.package.fit(two_modes, trained, host.y**2, restarts=2)


@IN_PYRO
def test_restarts_differ_and_the_store_keeps_one(host):
    """Of 3 restarts of 1 step each the lowest loss is kept, in Pyro without traces of the rest."""
    fit = host.fit(host.regression, host.x, host.y, restarts=3, steps=1)
    if host.name == "pyro":
        store = pyro.get_param_store()
        assert sorted(store.keys()) == ["DVIGuide.locs.weight", "DVIGuide.scales.weight"]
        np.testing.assert_array_equal(
            store["DVIGuide.locs.weight"].detach(), fit.params["DVIGuide.locs.weight"]
        )
    losses = []
    for seed in range(3):
        fresh(host.name)
        pyro.set_rng_seed(seed)
        losses.append(host.fit(host.regression, host.x, host.y, steps=1, seed=seed).loss)
    assert len(set(losses)) == 3


@pytest.mark.parametrize("shown", [True, False])
def test_the_wait_for_a_compiler_is_told_once_with_the_bar(host, capsys, shown):
    options = {"steps": 2, "progress_bar": shown, "by_draws": False}
    if host.name == "pyro":  # NumPyro compiles every loss
        options["objective"] = host.package.DeterministicELBO(compiled=True)
    fresh(host.name)
    host.fit(host.regression, host.x, host.y, **options)
    told = capsys.readouterr().err
    assert told.count("compiling the loss ...") == told.count("compiled in") == shown


@IN_PYRO
def test_a_bar_shows_the_elbo_and_its_parts(host, capsys):
    host.fit(host.regression, host.x, host.y, steps=4, every=2, progress_bar=True)
    shown = capsys.readouterr().err
    assert "4/4" in shown
    assert "ELBO -" in shown
    assert "obs -" in shown
    assert "weight -" in shown
