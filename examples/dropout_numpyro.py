"""The networks of the dropout examples in NumPyro."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from dropout import Setting
from numpyro.distributions import constraints
from regression import Split
from regression_numpyro import init_with_spread_kinks

from numpyro_moments import BBAlphaELBO, MCDropoutGuide, fit, predict


def homoscedastic_network(hidden: int) -> Callable:
    """One hidden ReLU layer, one output, and noise of a learnt scale; priors N(0, 1)."""

    def model(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        loc = bayesian_linear("output", jax.nn.relu(bayesian_linear("hidden", x, hidden)), 1)
        scale = numpyro.param("scale", jnp.asarray(0.3), constraint=constraints.positive)
        with numpyro.plate("data", len(x)):
            return numpyro.sample("obs", dist.Normal(loc[..., 0], scale), obs=y)

    return model


def bayesian_linear(name: str, x: jax.Array, outputs: int) -> jax.Array:
    shape = [outputs, x.shape[-1]]
    weight = numpyro.sample(f"{name}.weight", dist.Normal(0, 1).expand(shape).to_event(2))
    bias = numpyro.sample(f"{name}.bias", dist.Normal(0, 1).expand([outputs]).to_event(1))
    return x @ weight.T + bias


def train_and_predict(split: Split, setting: Setting) -> tuple[np.ndarray, np.ndarray, float]:
    """Log density and mean of the test rows, and seconds of a step."""
    model = homoscedastic_network(setting.hidden)
    guide = MCDropoutGuide(model, p=setting.rates, init_loc_fn=init_with_spread_kinks)
    found = fit(
        model,
        guide,
        split.x_train,
        split.y_train,
        objective=BBAlphaELBO(**setting.method.objective),
        steps=setting.steps,
        batch_size=min(setting.batch_size, len(split.x_train)),
        learning_rate=optax.cosine_onecycle_schedule(setting.steps, setting.learning_rate),
        every=1000,
        seed=setting.seed,
        progress_bar=False,
    )
    key = {"rng_key": jax.random.key(setting.seed)} if setting.method.is_drawn else {}
    options = {**setting.method.prediction, **key}
    prediction = predict(model, guide, found.params, split.x_test, **options)["obs"]
    log_prob = np.asarray(prediction.log_prob(split.y_test))
    return log_prob, np.asarray(prediction.mean), found.seconds["fitting"] / setting.steps
