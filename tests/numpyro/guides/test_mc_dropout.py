"""MCDropoutGuide follows the conventions of NumPyro's guides."""

import functools

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from flax import linen
from numpyro.contrib.module import random_eqx_module, random_flax_module
from numpyro.infer import Predictive, Trace_ELBO, TraceMeanField_ELBO

from numpyro_moments import SVI, DeterministicELBO, MCDropoutGuide, UnsupportedMoments, fit, predict
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import evaluated

P, K = 0.4, 0.6
KEY = jax.random.key(0)
X = jnp.linspace(-1, 1, 30).reshape(10, 3)
Y = jnp.tanh(X.sum(-1))


def observe(mean, y, scale=0.3):
    with numpyro.plate("data", len(mean)):
        numpyro.sample("obs", dist.Normal(mean, scale), obs=y)


def by_hand(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand((3, 4)).to_event(2))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand((4,)).to_event(1))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand((4,)).to_event(1))
    observe(jax.nn.relu(x @ w + b) @ v, y, numpyro.sample("s", dist.Gamma(2.0, 2.0)))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(4)(x)))[:, 0]


def flax_network(x, y=None):
    net = random_flax_module("net", Linen(), dist.Normal(0.0, 1.0), input_shape=x.shape)
    observe(net(x), y)


def equinox_network(x, y=None):
    mlp = equinox.nn.MLP(3, 1, 4, 1, key=jax.random.key(1))
    net = random_eqx_module("net", mlp, dist.Normal(0.0, 1.0))
    observe(jax.vmap(net)(x)[:, 0], y)


TRAININGS = {"flax": (flax_network, {"learn_p": True}), "equinox": (equinox_network, {})}


@functools.cache
def started(model=by_hand, **options):
    """A guide and its first parameters."""
    guide = MCDropoutGuide(p=P, **options)
    svi = SVI(model, guide, DeterministicELBO())
    return guide, evaluated(lambda: svi.get_params(svi.init(KEY, X, Y)))


def quantiles(guide, params, levels):
    return evaluated(lambda params: guide.quantiles(params, levels), params)


def drawn(guide, params, count):
    return evaluated(
        lambda params: guide.sample_posterior(KEY, params, sample_shape=(count,)), params
    )


def predicted(model, guide, params):
    """Mean and variance of the observations."""

    def moments(params):
        found = predict(model, guide, params, X)["obs"]
        return found.mean, found.variance

    return evaluated(moments, params)


@pytest.mark.parametrize("name", TRAININGS)
def test_training(name):
    model, options = TRAININGS[name]
    guide = MCDropoutGuide(p=P, **options)
    svi = SVI(model, guide, DeterministicELBO())
    state, losses = evaluated(lambda key: svi.init(key, X, Y), KEY), []
    update = by_numpy(lambda state: svi.update(state, X, Y))
    for _ in range(5):
        state, loss = update(state)
        losses.append(loss)
    params = svi.get_params(state)
    assert losses[-1] < losses[0]
    assert len(guide.masked) == 2
    assert set(guide.masked.values()) == {P}
    assert predicted(model, guide, params)[0].shape == (10,)
    learnt = [value for name, value in params.items() if name.endswith("_auto_p")]
    assert len(learnt) == (2 if options.get("learn_p") else 0)
    assert all(0 < value < 1 and abs(value - P) > 1e-4 for value in learnt)


@pytest.mark.parametrize("noise", ["bernoulli", "gaussian", "dropconnect"])
def test_draws_and_quantiles_have_the_moments_of_the_posterior(noise):
    """One mask over the inputs for each draw, shared by the outputs."""
    guide, params = started(noise=noise)
    draws = drawn(guide, params, 4000)["w"]
    ratio = np.asarray(draws / guide.median(params)["w"])
    assert ratio.shape == (4000, 3, 4)
    assert (ratio.std(2) < 1e-5).all() == (noise != "dropconnect")
    np.testing.assert_allclose(ratio.mean(0), 1.0, atol=4 * (P / K / 4000) ** 0.5)
    np.testing.assert_allclose(ratio.var(0), P / K, rtol=0.1)
    levels, draws = [0.1, 0.37, 0.43, 0.57, 0.63, 0.9], np.asarray(draws)
    for level, values in zip(levels, quantiles(guide, params, levels)["w"], strict=True):
        assert ((draws <= values + 1e-6).mean(0) > level - 0.03).all()
        assert ((draws >= values - 1e-6).mean(0) > 1 - level - 0.03).all()


def test_other_sites():
    for others in ("point", "mean_field"):
        guide, params = started(others=others)
        levels, draws = quantiles(guide, params, [0.1, 0.9]), drawn(guide, params, 9)
        for name in ("b", "s"):
            low, high = np.asarray(levels[name])
            assert ((low < high) == (others == "mean_field")).all()
            spread = np.asarray(draws[name]).std(0)
            assert ((spread > 1e-6) == (others == "mean_field")).all()


def test_predictive_of_the_host():
    """Each row has the right marginal: mean and variance over draws are the predicted ones."""
    guide, params = started(flax_network)
    draw = Predictive(flax_network, guide=guide, params=params, num_samples=4000)
    draws = np.asarray(evaluated(draw, KEY, X)["obs"])
    mean, variance = map(np.asarray, predicted(flax_network, guide, params))
    error = 4 * (variance / 4000) ** 0.5
    assert (abs(draws.mean(0) - mean) < error + 0.05 * variance**0.5).all()
    np.testing.assert_allclose(draws.var(0), variance, rtol=0.2)


@pytest.mark.parametrize("host", [Trace_ELBO, TraceMeanField_ELBO])
def test_elbos_by_densities_refuse_it(host):
    guide, params = started()
    with pytest.raises(UnsupportedMoments, match=r"'w' .* has no density") as raised:
        host().loss(KEY, params, by_hand, guide, X, Y)
    assert "DeterministicELBO" in raised.value.remedy


def test_sites_may_be_drawn():
    """A drawn mask is that of all rows: the ELBO is the same in expectation."""
    guide, params = started(flax_network)
    sites = ["net/Dense_1.kernel"]
    both = DeterministicELBO(sample_sites=sites, num_particles=1000), DeterministicELBO()
    first, second = evaluated(
        lambda params: [elbo.loss(KEY, params, flax_network, guide, X, Y) for elbo in both], params
    )
    assert float(first) == pytest.approx(float(second), rel=0.1)


def test_relaxed_masks_are_differentiable():
    guide, params = started(learn_p=True)

    def mean(params):
        return guide.get_posterior(params)["w"].sample(KEY, (2000,)).mean()

    slopes = evaluated(jax.grad(mean), params)
    assert {name for name, slope in slopes.items() if jnp.any(slope)} == {"w_auto_loc", "w_auto_p"}


def test_it_is_no_prior_of_new_data():
    options = {"steps": 1, "progress_bar": False, "by_draws": False}
    earlier = fit(by_hand, MCDropoutGuide(), X, Y, **options)
    with pytest.raises(ValueError, match="MCDropoutGuide has no density"):
        fit(by_hand, MCDropoutGuide(), X, Y, steps=1, prior=earlier)


SPELLINGS = {
    "matmul": lambda x, w: x @ w,
    "columns": lambda x, w: (w.T @ x.T).T,
    "einsum": lambda x, w: jnp.einsum("io,bi->bo", w, x),
    "tensordot": lambda x, w: jnp.tensordot(x, w, 1),
    "rows": lambda x, w: jax.vmap(lambda row: w.T @ row)(x),
    "jit": lambda x, w: jax.jit(jnp.dot)(x, jnp.copy(w)),
}


def test_spellings_of_a_linear_map():
    def model(x, y=None):
        for name, spelled in SPELLINGS.items():
            w = numpyro.sample(f"w of {name}", dist.Normal(0.0, 1.0).expand((3, 4)).to_event(2))
            with numpyro.plate(f"data of {name}", len(x)):
                numpyro.sample(name, dist.Normal(spelled(x, w), 0.3).to_event(1), obs=y)

    guide, y = MCDropoutGuide(p=P), jnp.ones((10, 4))
    svi = SVI(model, guide, elbo := DeterministicELBO(sum_sites=False))
    params = evaluated(lambda: svi.get_params(svi.init(KEY, X, y)))
    terms = evaluated(lambda params: elbo.loss(KEY, params, model, guide, X, y), params)
    for name in SPELLINGS:
        loc = guide.median(params)[f"w of {name}"]
        variance = P / K * (X**2 @ loc**2)
        expected = dist.Normal(X @ loc, 0.3).log_prob(y) - 0.5 * variance / 0.09
        assert -terms[name] == pytest.approx(float(expected.sum()), rel=1e-5), name
