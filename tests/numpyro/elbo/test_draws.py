"""A model that draws random numbers which are no site is refused."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from flax import linen
from jax import random
from numpyro.contrib.control_flow import scan
from numpyro.contrib.module import flax_module

from numpyro_moments import SVI, DeterministicELBO, DVIGuide, UnsupportedMoments, predict
from tests.checks.jaxprs import by_numpy

X, Y = jnp.linspace(-1, 1, 30).reshape(10, 3), jnp.linspace(0, 1, 10)


def regression(change, **plate):
    """A linear regression on inputs that are changed by a function."""

    def model():
        weights = numpyro.sample("weights", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        with numpyro.plate("data", 10, **plate) as rows:
            numpyro.sample("obs", dist.Normal(change(X[rows]) @ weights, 1.0), obs=Y[rows])

    return model


class Network(linen.Module):
    rate: float
    deterministic: bool = False

    @linen.compact
    def __call__(self, x):
        return linen.Dropout(self.rate, deterministic=self.deterministic)(linen.Dense(3)(x))


def network(**options):
    def change(x):
        network = flax_module("net", Network(0.5, **options), input_shape=x.shape)
        return network(x, rngs={"dropout": numpyro.prng_key()})

    return change


def recorded(x):
    numpyro.deterministic("noise", random.laplace(numpyro.prng_key()))
    return x


def with_parameter(x):
    return x + numpyro.param("shift", lambda key: random.normal(key))


SILENT = {
    "laplace": lambda x: x + random.laplace(numpyro.prng_key(), x.shape),
    "randint": lambda x: x * random.randint(numpyro.prng_key(), x.shape, 0, 2),
    "uniform": lambda x: x * random.uniform(numpyro.prng_key(), x.shape, minval=0.5),
    "laplace of a distribution": lambda x: x + dist.Laplace(0, 1).sample(numpyro.prng_key()),
    "shuffle": lambda x: random.permutation(numpyro.prng_key(), x),
}
SERVED = {
    "dropout": network(),
    "normal": lambda x: x + random.normal(numpyro.prng_key(), x.shape),
    "dropout at evaluation": network(deterministic=True),
    "a key of its own": lambda x: x + random.normal(random.key(3), x.shape),
    "recorded alone": recorded,
    "parameter": with_parameter,
    "scatter and branches": lambda x: jax.lax.cond(
        x[0, 0] < 0, lambda x: x.at[0].add(1.0), lambda x: x.at[1, 0].set(0.0), x
    ),
}


def losses(model, keys=(1, 2), **options):
    svi = SVI(model, DVIGuide(), DeterministicELBO(**options))

    @by_numpy
    def of(keys):
        state = svi.init(random.key(0))
        return jax.lax.map(lambda key: svi.evaluate(state._replace(rng_key=key)), keys)

    return of(jax.vmap(random.key)(jnp.array(keys))).tolist()


@pytest.mark.parametrize("plate", [{}, {"subsample_size": 4}])
@pytest.mark.parametrize("name", SILENT)
def test_silent_draws_are_refused(name, plate):
    with pytest.raises(UnsupportedMoments, match="belong to no site") as raised:
        losses(regression(SILENT[name], **plate))
    assert raised.value.operation == f"jax.random.{name.split()[0]}"
    assert "test_draws.py" in raised.value.location
    assert "numpyro.sample" in raised.value.remedy


def predicted(change, trained, **plate):
    guide = DVIGuide()
    svi = SVI(regression(trained), guide, DeterministicELBO())

    @by_numpy
    def mean():
        params = svi.get_params(svi.init(random.key(0)))
        return predict(regression(change, **plate), guide, params)["obs"].mean

    return mean()


def unchanged(x):
    return x


@pytest.mark.parametrize("name", SILENT)
def test_silent_draws_are_refused_in_predictions(name):
    with pytest.raises(UnsupportedMoments, match="its predictions would be random") as raised:
        predicted(SILENT[name], unchanged)
    assert raised.value.operation == f"jax.random.{name.split()[0]}"
    assert "test_draws.py" in raised.value.location


@pytest.mark.parametrize("name", sorted(SERVED.keys() - {"recorded alone"}))
def test_predictions_of_models_that_account_for_their_draws(name):
    assert predicted(SERVED[name], SERVED[name]).shape == (10,)


def test_predictions_of_a_subsample():
    assert predicted(unchanged, unchanged, subsample_size=4).shape == (4,)


def test_a_noise_that_is_recorded_would_be_predicted():
    with pytest.raises(UnsupportedMoments, match="its predictions would be random"):
        predicted(recorded, recorded)


@pytest.mark.filterwarnings("ignore:Found vars in model but not guide")
def test_a_loop_that_draws_what_it_goes_on_with_is_not_predicted():
    """Without observations its states are draws, and all that follows."""

    def model(y, feedback):
        decay = numpyro.sample("decay", dist.Normal(0.0, 1.0))

        def step(last, observed):
            mean = decay * last if feedback else decay
            now = numpyro.sample("obs", dist.Normal(mean, 1.0), obs=observed)
            return (now if feedback else last), None

        scan(step, 1.0, y, length=10)

    guide = DVIGuide()
    svi = SVI(model, guide, DeterministicELBO())
    params = svi.get_params(svi.init(random.key(0), Y, True))
    assert predict(model, guide, params, Y, True)["obs"].mean.shape == (10,)
    assert predict(model, guide, params, None, False)["obs"].mean.shape == (10,)
    with pytest.raises(UnsupportedMoments, match="its predictions would be random"):
        predict(model, guide, params, None, True)


@pytest.mark.parametrize("name", SERVED)
def test_what_accounts_for_its_draws_is_served(name):
    first, second = losses(regression(SERVED[name]))
    assert first == second


def test_subsamples_and_sites_are_drawn():
    assert len(set(losses(regression(lambda x: x, subsample_size=4), range(4)))) > 1

    def model():
        scale = numpyro.sample("scale", dist.Gamma(2.0, 2.0))
        numpyro.sample("obs", dist.Normal(numpyro.sample("centre", dist.Normal()), scale), obs=0.3)

    assert len(set(losses(model, range(3), sample_sites=["scale"]))) == 3
