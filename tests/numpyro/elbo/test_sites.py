"""Plates, scales, masks, several observations, drawn sites: the semantics of Trace_ELBO."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal

from numpyro_moments import DeterministicELBO, DVIGuide, UnsupportedMoments
from tests.checks.jaxprs import by_numpy
from tests.numpyro import models
from tests.oracles.numpyro_samples import assert_equals_trace_elbo, both_losses, perturbed

KEY = jax.random.key(0)
X, Y = (jnp.asarray(array) for array in models.data())


def weights():
    return numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


def guide_of_weights(*_):
    numpyro.sample("w", dist.Normal(jnp.array([0.7, 0.4, 0.1]), 0.2).to_event(1))


def loss_of(model, guide, *args, elbo=None):
    return (elbo or DeterministicELBO()).loss(KEY, {}, model, guide, *args)


def traced_loss_of(*args, **options):
    return jax.eval_shape(lambda: loss_of(*args, **options))  # refused before anything is compiled


def test_scales_and_masks_of_model_and_guide():
    """Each site's own, in model and guide: a scaled prior, scaled and masked observations."""

    def model(x, y):
        with handlers.scale(scale=0.3):
            w = weights()
        with handlers.scale(scale=0.5), numpyro.plate("data", len(x)):
            with handlers.mask(mask=y > 0):
                numpyro.sample("first", dist.Normal(x @ w, 0.5), obs=y)
            numpyro.sample("second", dist.Normal(x @ w, 0.5).mask(y < 0.5), obs=y)

    assert_equals_trace_elbo(model, guide_of_weights, X, Y)
    assert_equals_trace_elbo(model, handlers.scale(guide_of_weights, scale=2.0), X, Y)


def test_a_scale_that_is_traced():
    """As for an annealed KL divergence under jax.jit."""

    def model(x, y, annealing):
        with handlers.scale(scale=annealing):
            w = weights()
        numpyro.sample("obs", dist.Normal(x @ w, 0.5).to_event(1), obs=y)

    traced = by_numpy(lambda scale: loss_of(model, guide_of_weights, X, Y, scale))
    for scale in (0.3, 1.0):
        fixed = by_numpy(lambda scale=scale: loss_of(model, guide_of_weights, X, Y, scale))()
        assert traced(scale) == pytest.approx(float(fixed))


def test_missing_observations():
    """obs_mask makes a latent site of what is missing."""

    def model(x, y):
        w = weights()
        with numpyro.plate("data", len(x)):
            numpyro.sample("obs", dist.Normal(x @ w, 0.5), obs=y, obs_mask=y > 0)

    assert_equals_trace_elbo(model, DVIGuide(init_scale=0.3), X, Y)


def subsampled(x, y, size=5):
    """Global and local latent sites, in a plate of which each step sees a part."""
    spread = numpyro.sample("spread", dist.LogNormal(0.0, 0.3))
    w = weights()
    with numpyro.plate("data", len(x), subsample_size=size) as index:
        local = numpyro.sample("local", dist.Normal(0.0, spread))
        part = numpyro.subsample(x, event_dim=1)
        numpyro.sample("obs", dist.Normal(local + part @ w, 0.5), obs=y[index])


@pytest.mark.parametrize("make_guide", [DVIGuide, AutoNormal])
def test_subsampled_local_latents_average_to_the_whole(make_guide):
    """Every subsample of a partition, so that the average is exact: no sampling error at all."""
    guide = make_guide(subsampled)
    with numpyro.handlers.block():
        params = perturbed(guide, X, Y)

    @by_numpy
    def loss(index):
        fixed = handlers.substitute(subsampled, data={"data": index})
        fixed_guide = handlers.substitute(guide, data={"data": index})
        return DeterministicELBO().loss(KEY, params, fixed, fixed_guide, X, Y)

    losses = by_numpy(jax.vmap(loss))(jnp.arange(20).reshape(4, 5))
    whole = make_guide(lambda x, y: subsampled(x, y, None))
    whole_loss = by_numpy(lambda: DeterministicELBO().loss(KEY, params, whole.model, whole, X, Y))()
    assert jnp.mean(losses) == pytest.approx(float(whole_loss), rel=1e-5)
    assert jnp.std(losses) > 0.1


def test_guide_and_model_see_the_same_subsample():
    """The mean over keys is that over all subsamples; local sites would not fit otherwise."""
    guide = AutoNormal(subsampled)
    params = perturbed(guide, X, Y)

    @jax.vmap
    def loss(key):
        return DeterministicELBO().loss(key, params, subsampled, guide, X, Y)

    losses = by_numpy(loss)(jax.random.split(KEY, 3000))
    whole = AutoNormal(lambda x, y: subsampled(x, y, None))
    expected = by_numpy(lambda: DeterministicELBO().loss(KEY, params, whole.model, whole, X, Y))()
    assert abs(losses.mean() - expected) < 4 * losses.std() / 3000**0.5


def test_several_kinds_of_sites_together():
    """Observed sites that share latent ones, a factor, a deterministic site, a vector of events."""

    def model(x, y):
        w, shift = weights(), numpyro.sample("shift", dist.Normal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        chance = numpyro.sample("chance", dist.Beta(2.0, 3.0))
        mean = numpyro.deterministic("mean", x @ w + shift)
        numpyro.factor("penalty", -0.3 * jnp.sum(w**2))
        with numpyro.plate("data", len(x)):
            numpyro.sample("first", dist.Normal(mean, 1 + noise), obs=y)
            numpyro.sample("coin", dist.Bernoulli(chance), obs=(y > 0).astype(float))
            pair = jnp.stack([mean, -mean], -1)
            numpyro.sample("pair", dist.Normal(pair, 0.4).to_event(1), obs=jnp.stack([y, y], -1))

    assert_equals_trace_elbo(model, DVIGuide(init_scale=0.2), X, Y)


def test_conditional_guide_sites_in_plates():
    def model(x, y):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        with numpyro.plate("groups", len(x)):
            spread = numpyro.sample("spread", dist.LogNormal(0.3, 0.5))
            numpyro.sample("obs", dist.Normal(centre, spread), obs=y)

    def guide(x, y):
        centre = numpyro.sample("centre", dist.Normal(0.2, 0.3))
        with numpyro.plate("groups", len(x)):
            numpyro.sample("spread", dist.LogNormal(0.1 + 0.5 * centre, 0.2))

    assert_equals_trace_elbo(model, guide, X, Y)


def root_of_a_rate(x, y):
    w = weights()
    precision = numpyro.sample("precision", dist.Gamma(2.0, 1.0))
    models.observe(x, dist.Normal(x @ w, jax.lax.rsqrt(precision)), y)


def gamma_guide(x, y):
    guide_of_weights()
    numpyro.sample("precision", dist.Gamma(9.0, 4.0))


def test_named_sites_are_sampled():
    """A Gamma has reparameterised draws, but no Gaussian behind it."""
    assert_equals_trace_elbo(root_of_a_rate, DVIGuide(init_scale=0.2), X, Y)
    with pytest.raises(UnsupportedMoments, match=r"'precision' has a Gamma(?s:.)*sample_sites"):
        traced_loss_of(root_of_a_rate, gamma_guide, X, Y)
    drawn = DeterministicELBO(sample_sites=["precision"], num_particles=4000)
    loss, expected, error = both_losses(root_of_a_rate, gamma_guide, X, Y, elbo=drawn)
    assert abs(loss - expected) < 5 * error
    one = DeterministicELBO(sample_sites=["precision"])
    loss_of_draw = by_numpy(lambda key: one.loss(key, {}, root_of_a_rate, gamma_guide, X, Y))
    losses = [loss_of_draw(jax.random.key(seed)) for seed in (1, 2)]
    assert losses[0] != losses[1]


def test_sites_that_cannot_be_sampled_are_refused():
    with pytest.raises(UnsupportedMoments, match=r"'v', not a latent.*'precision', 'w'"):
        traced_loss_of(root_of_a_rate, gamma_guide, X, Y, elbo=sampling("precision", "v"))
    with pytest.raises(UnsupportedMoments, match="'obs', not a latent site"):
        traced_loss_of(root_of_a_rate, gamma_guide, X, Y, elbo=sampling("precision", "obs"))

    def model():
        count = numpyro.sample("count", dist.Poisson(2.0))
        numpyro.sample("obs", dist.Normal(count, 1.0), obs=1.0)

    def guide():
        numpyro.sample("count", dist.Poisson(3.0))

    with pytest.raises(UnsupportedMoments, match=r"'count' is discrete(?s:.)*TraceEnum_ELBO"):
        traced_loss_of(model, guide)
    with pytest.raises(UnsupportedMoments, match=r"Poisson has no repar(?s:.)*TraceEnum_ELBO"):
        traced_loss_of(model, guide, elbo=sampling("count"))


def sampling(*names):
    return DeterministicELBO(sample_sites=names)
