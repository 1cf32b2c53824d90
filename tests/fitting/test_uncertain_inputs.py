"""Moments as inputs of models: a closed form, draws, mini-batches and refusals."""

import math

import jax
import numpy as np
import pandas as pd
import pytest

from moment_calculus.predictions.moments import Moments
from tests.checks.marks import IN_PYRO
from tests.response.models import doubles, mean_field

RNG = np.random.default_rng(36)
ROWS, NOISE = 40, 0.5
X = RNG.normal(size=(ROWS, 2))
Y = X @ np.array([1.0, -2.0]) + NOISE * RNG.normal(size=ROWS)
SPREAD = RNG.uniform(0.0, 0.3, size=X.shape)


def linear(host):
    def model(x, y=None):
        prior = host.dist.Normal(host.array(np.zeros(2)), 1.0).to_event(1)
        weight = host.language.sample("weight", prior)
        host.observe(x, host.dist.Normal(x @ weight, NOISE), y)

    return model


def noisy(host, **spread):
    spread = spread or {"variance": SPREAD}
    parts = {name: host.array(np.asarray(part)) for name, part in spread.items()}
    return host.package.Moments(host.array(X), **parts)


def trained(host, x, **options):
    options = {"steps": 30, "progress_bar": False, "float64": True, **options}
    return host.package.fit(linear(host), host.package.DVIGuide(), x, Y, **options)


def posterior(host, fit):
    """Location and scale of the weights."""
    names = mean_field(host, weight=(0, 0))
    return [np.asarray(fit.params[name]) for name in names]


def closed_form(loc, scale, spread=SPREAD):
    """The negative ELBO of the linear model."""
    errors = (Y - X @ loc) ** 2 + (X**2 + spread) @ scale**2 + spread @ loc**2
    likelihood = -0.5 * errors / NOISE**2 - 0.5 * math.log(2 * math.pi * NOISE**2)
    divergence = 0.5 * (loc**2 + scale**2 - 1) - np.log(scale)
    return divergence.sum() - likelihood.sum()


@pytest.mark.parametrize("of_numpy", [False, True])
def test_a_linear_model_has_its_closed_form(host, of_numpy):
    with doubles(host):
        x = host.package.Moments(X, variance=SPREAD) if of_numpy else noisy(host)
        fit = trained(host, x, by_draws=False)
        assert fit.loss == pytest.approx(closed_form(*posterior(host, fit)), rel=1e-10)


def test_covariances_of_inputs_count(host):
    """Noise that both inputs have in common adds the square of the sum of the weights."""
    common = np.broadcast_to(0.2 * np.ones((2, 2)), (ROWS, 2, 2))
    with doubles(host):
        fit = trained(host, noisy(host, covariance=common), by_draws=False)
        found = host.package.predict(linear(host), fit, noisy(host, covariance=common))["obs"]
        plain = host.package.predict(linear(host), fit, host.array(X))["obs"]
        loc, scale = posterior(host, fit)
    added = 0.2 * (loc.sum() ** 2 + (scale**2).sum())
    difference = np.asarray(found.epistemic_variance) - np.asarray(plain.epistemic_variance)
    np.testing.assert_allclose(difference, added, rtol=1e-9)


ADAM = {"steps": 80, "learning_rate": 0.05}


@pytest.mark.parametrize(
    "options", [ADAM, {**ADAM, "batch_size": 10}, {"method": "newton", "steps": 50}]
)
def test_draws_confirm_a_trained_loss(host, options):
    """The check at the end of ``fit`` draws the inputs, too."""
    fit = trained(host, noisy(host), **options)
    check = fit.by_draws
    assert abs(check.value - check.loss) < 4 * check.standard_error
    of_noise = check.loss - closed_form(*posterior(host, fit), spread=0 * SPREAD)
    assert of_noise > 10 * check.standard_error


@IN_PYRO
def test_a_compiled_loss_is_the_eager_one_and_drawn_by_the_program_itself(host):
    compiled = host.package.DeterministicELBO(compiled=True)
    fits = [trained(host, noisy(host), objective=o) for o in (None, compiled)]
    np.testing.assert_allclose(*(fit.losses for fit in fits), rtol=1e-6)
    check = fits[1].by_draws
    assert abs(check.value - check.loss) < 4 * check.standard_error


def test_predictions_by_draws_and_their_attribution(host):
    fit, x = trained(host, noisy(host), by_draws=False), noisy(host)
    exact = host.package.predict(linear(host), fit, x)["obs"]
    key = {"rng_key": jax.random.key(0)} if host.name == "numpyro" else {}
    drawn = host.package.predict(
        linear(host), fit, x, propagation="sampled", num_particles=4000, **key
    )["obs"]
    ratio = np.asarray(drawn.variance) / np.asarray(exact.variance)
    assert abs(ratio - 1).max() < 0.15  # by 4000 draws five standard errors are 0.11
    at_means = host.package.predict(linear(host), fit, x, propagation="mean")["obs"]
    np.testing.assert_allclose(np.asarray(at_means.variance), NOISE**2, rtol=1e-6)
    assert "x" in {source.name for source in exact.attribution()}


def test_missing_entries_have_the_moments_of_their_column(host):
    x = X.copy()
    x[::4, 1] = np.nan
    moments = host.package.Moments.missing(host.array(x))
    known = x[~np.isnan(x[:, 1]), 1]
    np.testing.assert_allclose(np.asarray(moments.mean)[::4, 1], known.mean(), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(moments.variance)[::4, 1], known.var(), rtol=1e-5)
    assert np.asarray(moments.variance)[1::4].max() == 0
    of_others = host.package.Moments.missing(host.array(x), columns_of=host.array(3 * X))
    np.testing.assert_allclose(np.asarray(of_others.mean)[::4, 1], 3 * X[:, 1].mean(), rtol=1e-5)
    with pytest.raises(ValueError, match="no known entry"):
        host.package.Moments.missing(host.array(x * np.array([1.0, np.nan])))


def test_frames_have_gaps():
    """Numbers of any type, gaps as pandas writes them, and columns by name."""
    integers = pd.array([1, None, 3, 5], dtype="Int64")
    frame = pd.DataFrame(
        {"a": [1.0, 2.0, np.nan, 3.0], "b": integers, "c": [True, None, True, True]}
    )
    moments = Moments.missing(frame)
    np.testing.assert_array_equal(moments.mean, [[1, 1, 1], [2, 3, 1], [2, 3, 1], [3, 5, 1]])
    expected = [[0, 0, 0], [0, 8 / 3, 0], [2 / 3, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(moments.variance, expected)
    new = Moments.missing(frame[["c", "b", "a"]][1:3], columns_of=frame)
    np.testing.assert_array_equal(new.mean, moments.mean[1:3])
    with pytest.raises(TypeError, match=r"'x\['t'\]' holds text, such as 'u'"):
        Moments.missing(frame.assign(t=["u", None, "v", "w"]))
    with pytest.raises(ValueError, match="column 'z' has no known entry"):
        Moments.missing(frame.assign(z=np.nan))
    with pytest.raises(ValueError, match=r"lacks the column\(s\) b of columns_of"):
        Moments.missing(frame[["a", "c"]], columns_of=frame)


@IN_PYRO
def test_a_frame_with_gaps_is_an_input(host):
    x = np.where(RNG.uniform(size=X.shape) < 0.2, np.nan, X)
    frame, moments = pd.DataFrame(x), host.package.Moments.missing(host.array(x))
    with doubles(host):
        found = [
            trained(host, part, steps=2, by_draws=False).losses
            for part in (Moments.missing(frame), moments)
        ]
    np.testing.assert_allclose(*found, rtol=1e-12)


@IN_PYRO
def test_other_verbs_refuse(host):
    with pytest.raises(TypeError, match=r"diagnose takes certain arguments.*argument 0 is Moments"):
        host.package.diagnose(linear(host), trained(host, X), noisy(host), host.array(Y))


def test_mistakes_are_named(host):
    with pytest.raises(ValueError, match="a variance is negative"):
        trained(host, noisy(host, variance=-SPREAD))
    with pytest.raises(TypeError, match="Moments are no array"):
        noisy(host) @ host.array(np.ones(2))
