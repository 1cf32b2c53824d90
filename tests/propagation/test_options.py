"""What is chosen of objectives and predictions, and what is said of choices that are none."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as numpyro_dist
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_inference.objectives.data_plates import DataPlateFinder
from numpyro_moments.prediction.predict import Prediction, SampledPrediction, needed
from tests.fitting.models import fresh
from tests.propagation.oracle import divergence, energy, losses


@pytest.mark.parametrize("objective", ["BBAlphaELBO", "RenyiELBO"])
@pytest.mark.parametrize(
    ("alpha", "kind"),
    [("0.5", "'0.5'.* not a str"), (None, "not a NoneType"), ([0.5], "not a list")],
)
def test_alpha_is_a_number(host, objective, alpha, kind):
    with pytest.raises(TypeError, match=rf"{objective}\(alpha=.*{kind}"):
        getattr(host.package, objective)(alpha)


@pytest.mark.parametrize("objective", ["BBAlphaELBO", "RenyiELBO"])
def test_alpha_may_be_an_array_of_one_number(host, objective):
    made = getattr(host.package, objective)
    for one in (0.5, np.float32(0.5), host.array(0.5), host.array([0.5])):
        assert made(one).alpha == 0.5
    with pytest.raises(TypeError, match=r"alpha is one number, not a \w+ of shape \(2,\)"):
        made(host.array([0.5, 0.6]))


def warned(evaluate):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate()
    return [str(warning.message) for warning in caught if "one datum" in str(warning.message)]


def test_one_datum_is_warned_of_once():
    """For each set of observed sites, however often it is evaluated."""
    find = DataPlateFinder()
    observed = ({"a": (), "b": ()}, {"a": (), "b": ()}, {"a": ()})
    both, one = warned(lambda: [find(sites) for sites in observed])
    assert "observed sites a, b in no plate" in both
    assert "observed sites a in no plate" in one


@pytest.mark.parametrize("host", ["pyro"], indirect=True)
def test_an_objective_asks_for_the_data_more_than_once(host):
    def model(x, y):
        host.language.sample("obs", host.dist.Normal(x @ host.weight(), 1.0).to_event(1), obs=y)

    energy = host.package.BBAlphaELBO(propagation="sampled", num_particles=2)
    data, sites = (X, Y), {"weight": (np.zeros(3), np.ones(3))}
    assert len(warned(lambda: losses(host, energy, model, sites, *data))) == 1


def test_one_draw_of_a_bound_is_warned_of(host):
    with pytest.warns(UserWarning, match="is the ELBO's.* num_particles >= 2"):
        host.package.RenyiELBO(0.5, num_particles=1)


def test_what_is_no_random_key_is_named():
    package = fresh("numpyro").package
    noisy = package.Moments(np.zeros(2), variance=np.ones(2))
    numbers = {"rng_key=7 of type int .*random.key\\(7\\)": 7, "and shape \\(3,\\)": jnp.arange(3)}
    for cause, key in numbers.items():
        with pytest.raises(TypeError, match=cause):
            package.propagate(jnp.tanh, noisy, propagation="sampled", rng_key=key)
        with pytest.raises(TypeError, match="key"):
            needed(key, is_mean=False)
    for key in (jax.random.key(1), jax.random.PRNGKey(1), np.zeros(2, np.uint32)):
        assert needed(key, is_mean=True) is key


def test_draws_of_predictions_need_a_key():
    prediction = Prediction("obs", numpyro_dist.Normal(jnp.zeros(2), 1.0))
    for predicted in (
        prediction,
        SampledPrediction("obs", numpyro_dist.Normal(jnp.zeros((3, 2)), 1.0)),
    ):
        with pytest.raises(TypeError, match=r"key=0 of type int"):
            predicted.sample(2, 0)


X, Y = np.random.default_rng(0).normal(size=(4, 3)), np.zeros(4)


def of_rows(alpha, weight, x, y):
    """The energy of one observation model of which each row is one datum of several elements."""
    loc, scale = weight
    covariance = (x * scale**2) @ np.swapaxes(x, -1, -2)
    return sum(energy(alpha, *datum, 1.0) for datum in zip(y, x @ loc, covariance, strict=True))


def test_rows_times_a_vector_are_one_vector(host):
    """x @ w is w @ xᵀ: the dependence of its elements is known."""
    x, y = np.random.default_rng(1).normal(size=(3, 2, 3)), np.ones((3, 2))
    weight = X[0], X[1] ** 2

    def model(x, y):
        loc, plate = 0.5 * (x @ host.weight()), host.language.plate
        with plate("rows", 3, dim=-2), plate("each", 2, dim=-1):
            host.language.sample("obs", host.dist.Normal(loc, 1.0), obs=y)

    objective = host.package.BBAlphaELBO(0.5, datum="rows")
    found = losses(host, objective, model, {"weight": weight}, x, y)[0]
    exact = divergence(*weight) - of_rows(0.5, weight, 0.5 * x, y)
    assert found == pytest.approx(exact, rel=1e-10)


def refused(host, objective, model, guide=None):
    with pytest.raises(UnsupportedMoments) as raised:
        losses(host, objective, model, {"weight": (X[0], X[0] ** 2)}, X, Y, guide=guide)
    return raised.value


def test_a_discrete_site_that_is_to_be_drawn(host):
    def latent():
        flag = host.language.sample("flag", host.dist.Bernoulli(host.array(0.3)))
        return host.weight() * flag

    def model(x, y):
        loc = x @ latent()
        host.observe(x, host.dist.Normal(loc, 1.0), y)

    elbo = host.package.DeterministicELBO(propagation="sampled")
    refusal = refused(host, elbo, model, guide=lambda *_: latent())
    assert "latent site 'flag' is discrete (Bernoulli" in refusal.cause
    assert "sample_sites=['flag']" not in str(refusal)


def test_correlations_that_diagonal_propagation_would_ignore(host):
    def guide(*_):
        host.language.sample(
            "weight", host.dist.MultivariateNormal(host.array(X[0]), host.array(np.eye(3)))
        )

    energy = host.package.BBAlphaELBO(covariance="diagonal")
    refusal = refused(host, energy, host.regression, guide=guide)
    assert "would ignore its correlations" in refusal.cause
    assert "use covariance='full'" in refusal.remedy
    assert "DeterministicELBO" not in refusal.remedy
