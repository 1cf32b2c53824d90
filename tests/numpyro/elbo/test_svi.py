"""The literal line, and what NumPyro's SVI offers: run, resume, stable updates, optimisers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.infer
import optax
import pytest
from jax.example_libraries import optimizers

from numpyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.checks.jaxprs import by_numpy
from tests.numpyro import models
from tests.oracles.numpyro_samples import perturbed

KEY = jax.random.key(0)


def test_training_lowers_the_loss_without_noise(capsys):
    x, y = models.data()
    svi = SVI(models.linear_regression, DVIGuide(), DeterministicELBO())
    result = svi.run(KEY, 80, x, y)
    assert "loss" in capsys.readouterr().err  # of the progress bar
    assert result.losses[-1] < 0.8 * result.losses[0]
    states = [result.state._replace(rng_key=jax.random.key(seed)) for seed in (1, 2)]
    assert svi.evaluate(states[0], x, y) == svi.evaluate(states[1], x, y)


def test_a_resumed_run_is_one_run():
    x, y = models.data()
    whole, svi = (SVI(models.linear_regression, DVIGuide(), DeterministicELBO()) for _ in range(2))
    whole = whole.run(KEY, 20, x, y, progress_bar=False)
    first = svi.run(KEY, 10, x, y, progress_bar=False)
    second = svi.run(KEY, 10, x, y, progress_bar=False, init_state=first.state)
    np.testing.assert_allclose(
        np.concatenate([first.losses, second.losses]), whole.losses, rtol=1e-5
    )


def test_a_stable_update_skips_what_is_not_finite():
    x, y = models.data()
    svi = SVI(models.linear_regression, DVIGuide(), DeterministicELBO())
    state = svi.init(KEY, x, y)
    poisoned = jnp.where(jnp.arange(len(y)) == 0, jnp.nan, y)
    after, loss = jax.jit(svi.stable_update)(state, x, poisoned)
    assert not jnp.isfinite(loss)
    before, unchanged = svi.get_params(state), svi.get_params(after)
    assert all(jnp.array_equal(before[name], unchanged[name]) for name in before)


ELBO = DeterministicELBO()
OPTIMISERS = {
    "numpyro": (SVI, numpyro.optim.Adam(0.05), ELBO),
    "jax, the other way round": (SVI, ELBO, optimizers.adam(0.05)),
    "optax, the other way round": (SVI, ELBO, optax.adam(0.05)),
    "the host's own SVI": (numpyro.infer.SVI, numpyro.optim.Adam(0.05), ELBO),
}


@pytest.mark.parametrize(("svi", "first", "second"), OPTIMISERS.values(), ids=OPTIMISERS)
def test_optimisers_in_either_place(svi, first, second):
    x, y = models.data()
    model = models.linear_regression
    result = svi(model, DVIGuide(model), first, second).run(KEY, 30, x, y, progress_bar=False)
    assert result.losses[-1] < result.losses[0]


def test_wrong_arguments_are_refused():
    model, guide = models.linear_regression, DVIGuide()
    with pytest.raises(TypeError, match="DeterministicELBO was unexpected"):
        SVI(model, guide, DeterministicELBO(), DeterministicELBO())
    with pytest.raises(TypeError, match="Expected either"):
        SVI(model, guide, "adam")
    with pytest.raises(ValueError, match="sample_sites=\\['w'\\]"):
        DeterministicELBO(sample_sites="w")
    with pytest.raises(ValueError, match="num_particles=0"):
        DeterministicELBO(num_particles=0)
    with pytest.raises(
        ValueError, match="covariance='dense' is not one of full, backward, diagonal"
    ):
        DeterministicELBO(covariance="dense")


def test_losses_of_sites_sum_to_the_loss():
    x, y = models.data()
    model, guide = models.linear_regression, DVIGuide(models.linear_regression)
    params = perturbed(guide, x, y)
    apart = DeterministicELBO(sum_sites=False).loss(KEY, params, model, guide, x, y)
    assert set(apart) == {"w", "b", "obs"}
    total = DeterministicELBO().loss(KEY, params, model, guide, x, y)
    assert sum(apart.values()) == pytest.approx(float(total), rel=1e-6)


def test_vmap_over_seeds_and_over_an_ensemble():
    """Parameters of several guides at once, with a step each."""
    x, y = models.data()
    svi = SVI(models.network, DVIGuide(), DeterministicELBO())
    states = by_numpy(jax.vmap(lambda key: svi.init(key, x, y)))(jax.random.split(KEY, 3))
    together, losses = by_numpy(jax.vmap(lambda state: svi.update(state, x, y)))(states)
    update = by_numpy(lambda state: svi.update(state, x, y))
    for member in range(3):
        _, loss = update(jax.tree.map(lambda part, member=member: part[member], states))
        assert loss == pytest.approx(float(losses[member]), rel=1e-5)
    assert len({float(loss) for loss in losses}) == 3
    assert svi.get_params(together)["last_bias_auto_loc"].shape == (3, 1)


def test_mutable_state_is_carried_and_static_arguments_are_passed():
    def model(x, y=None, *, noise):
        w = numpyro.sample("w", numpyro.distributions.Normal(0, 1).expand([3]).to_event(1))
        calls = numpyro.primitives.mutable("calls", {"count": jnp.zeros(())})
        calls["count"] = calls["count"] + 1
        models.observe(x, numpyro.distributions.Normal(x @ w, noise), y)

    x, y = models.data()
    svi = SVI(model, DVIGuide(), DeterministicELBO(), noise=0.3)
    state = svi.init(KEY, x, y)
    start, update = float(state.mutable_state["calls"]["count"]), jax.jit(svi.update)
    for _ in range(3):
        state, loss = update(state, x, y)
        assert jnp.isfinite(loss)
    assert float(state.mutable_state["calls"]["count"]) == start + 3
