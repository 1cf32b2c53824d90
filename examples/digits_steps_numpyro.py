"""The networks of the example of step activations in NumPyro."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from digits_steps import CLASSES, HIDDEN, Digits, Setting, initial_weights

from numpyro_moments import DeterministicELBO, DVIGuide, fit, predict


def steps_of(x: jax.Array, y: jax.Array | None = None) -> None:
    """One hidden layer of signs, as steps with the values −1 and 1."""
    hidden = bayesian_linear("hidden", x, HIDDEN, scale=64**-0.5)
    logits = bayesian_linear("output", 2 * jnp.heaviside(hidden, 0.0) - 1, CLASSES, scale=1.0)
    with numpyro.plate("images", len(x)):
        numpyro.sample("digit", dist.Categorical(logits=logits), obs=y)


def bayesian_linear(name: str, x: jax.Array, outputs: int, scale: float) -> jax.Array:
    shape = [outputs, x.shape[-1]]
    weight = numpyro.sample(f"{name}.weight", dist.Normal(0, scale).expand(shape).to_event(2))
    bias = numpyro.sample(f"{name}.bias", dist.Normal(0, 1).expand([outputs]).to_event(1))
    return x @ weight.T + bias


def by_moments(data: Digits, setting: Setting) -> dict[str, float]:
    """The test accuracy, and the loss in nats for each image beside that of draws."""
    guide = DVIGuide()
    found = fit(
        steps_of,
        guide,
        data.x_train,
        data.y_train,
        objective=DeterministicELBO(covariance="backward"),
        steps=setting.steps,
        batch_size=setting.batch_size,
        learning_rate=optax.cosine_decay_schedule(setting.learning_rate, setting.steps),
        every=setting.steps,
        seed=setting.seed,
        progress_bar=False,
    )
    probabilities = predict(steps_of, found, data.x_test, covariance="backward")["digit"].probs

    def loss(**options) -> float:
        program = found.params, steps_of, guide, data.x_train, data.y_train
        return float(DeterministicELBO(**options).loss(jax.random.key(0), *program)) / len(
            data.x_train
        )

    return {
        "accuracy": float(np.mean(np.asarray(probabilities).argmax(-1) == data.y_test)),
        "loss": loss(covariance="backward"),
        "loss by draws": loss(propagation="sampled", num_particles=setting.num_particles),
    }


@jax.custom_jvp
def _sign(x: jax.Array) -> jax.Array:
    """The sign, with the gradient of the identity between −1 and 1."""
    return jnp.where(x > 0, 1.0, -1.0)


_sign.defjvp(lambda primals, tangents: (_sign(*primals), tangents[0] * (abs(primals[0]) < 1)))


def straight_through(data: Digits, setting: Setting) -> dict[str, float]:
    """The test accuracy."""
    random = np.random.default_rng(setting.seed)
    weights = initial_weights(random), (jnp.zeros(HIDDEN), jnp.zeros(CLASSES))
    rate = optax.cosine_decay_schedule(setting.learning_rate / 10, setting.steps)
    optimiser = optax.adam(rate)

    def logits(weights, x):
        (first, last), (bias, final) = weights
        return _sign(x @ first.T + bias) @ last.T + final

    def loss(weights, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(logits(weights, x), y).mean()

    @jax.jit
    def step(weights, state, x, y):
        updates, state = optimiser.update(jax.grad(loss)(weights, x, y), state)
        return optax.apply_updates(weights, updates), state

    state = optimiser.init(weights)
    for _ in range(setting.steps):
        rows = random.choice(len(data.x_train), setting.batch_size, replace=False)
        weights, state = step(weights, state, data.x_train[rows], data.y_train[rows])
    found = np.asarray(logits(weights, data.x_test)).argmax(-1)
    return {"accuracy": float(np.mean(found == data.y_test))}
