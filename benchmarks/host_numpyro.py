"""NumPyro: what models call, fits, draws, and steps under jax.jit, as in `host_pyro`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as np
import numpy
import numpyro
import numpyro.distributions
from models import convolutional, perceptron, standard
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, autoguide
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam
from time_to_accuracy_data import BATCH, EVERY, Split
from timing import Step

import numpyro_moments
from numpyro_moments.fitting.problem import QUICK
from numpyro_moments.objectives.base import Program

NAME, BY, summary = "NumPyro", "median", statistics.median
package, infer, dist = numpyro_moments, numpyro.infer, numpyro.distributions
sample, plate, factor = numpyro.sample, numpyro.plate, numpyro.factor
deterministic, scale = numpyro.deterministic, numpyro.handlers.scale
array, init_to_value = np.asarray, numpyro.infer.init_to_value
relu, gelu, standardise = jax.nn.relu, jax.nn.gelu, jax.nn.standardize
sigmoid, softmax = jax.nn.sigmoid, jax.nn.softmax
doubles, own_parameters = partial(jax.enable_x64, True), nullcontext


def convolved(x: jax.Array, weight: jax.Array, stride: int) -> jax.Array:
    """Images [n, channels, ...] convolved with a weight, without padding."""
    return jax.lax.conv(x, weight, (stride, stride), "VALID")


def normal(seed: int, *shape: int) -> jax.Array:
    """Standard normal numbers."""
    return jax.random.normal(jax.random.key(seed), shape)


def simulated(model: Callable, *data: Any) -> jax.Array:
    """What a model returns for data."""
    return numpyro.handlers.seed(model, jax.random.key(1))(*data)


def randomness(seed: int) -> tuple:
    """Arguments that draws take."""
    return (jax.random.key(seed),)


def fresh(seed: int = 0) -> None:
    """Parameters of earlier fits are nowhere."""


def forget() -> None:
    """Drop compiled programs: those of many models are more than a process may map."""
    # what is no longer waited for would go on in the background, beside what is timed next
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.clear_caches()


def start_of(fit: Any) -> dict[str, Any]:
    """Options with which another fit goes on from this one."""
    return {"params": fit.params}


def located(params: dict[str, Any]) -> dict[str, tuple]:
    """Locations and scales of a mean-field guide by site, of its parameters."""
    names = [name.removesuffix("_auto_loc") for name in params if name.endswith("_auto_loc")]
    part = lambda name, what: numpy.asarray(params[f"{name}_auto_{what}"])  # noqa: E731
    return {name: (part(name, "loc"), part(name, "scale")) for name in names}


def terms_by_draws(
    objective: Any, model: Any, fit: Any, data: tuple, count: int, times: int
) -> list[tuple[numpy.ndarray, ...]]:
    """Terms of an objective by so many particles at once, so many times; compiled once."""
    by_draws, program = objective.by_draws(count), Program(model, fit.guide, data, {}, fit.params)
    terms = jax.jit(lambda key: by_draws.particle_terms(key, program)[0], compiler_options=QUICK)
    keys = jax.random.split(jax.random.key(1), times)
    return [tuple(numpy.asarray(part, numpy.float64) for part in terms(key)) for key in keys]


def losses(model: Callable, data: tuple, samples: int, steps: int) -> tuple[float, Any]:
    """Closed-form loss after training, and Trace_ELBO's loss for each draw [samples]."""
    guide = package.DVIGuide()
    svi = package.SVI(model, guide, package.DeterministicELBO())
    trained = svi.run(jax.random.key(0), steps, *data, progress_bar=False)

    @jax.jit
    @jax.vmap
    def sampled(key: jax.Array) -> jax.Array:
        return Trace_ELBO().loss(key, trained.params, model, guide, *data)

    draws = sampled(jax.random.split(jax.random.key(1), samples))
    return float(jax.jit(svi.evaluate)(trained.state, *data)), numpy.asarray(draws, numpy.float64)


def scan(step: Callable, state: Any, inputs: Any) -> tuple[Any, Any]:
    """The last state, and the outputs of every step."""
    return jax.lax.scan(step, state, inputs)


def over_draws(function: Callable) -> Callable:
    """A compiled function of arrays with draws on the first axis."""
    return jax.jit(jax.vmap(function))


def nuts(make: Callable[[], Callable], chains: int, draws: int) -> list[dict]:
    """Draw chain after chain, as ``MCMC`` runs them: each compiles anew, in every run."""
    with doubles():
        sampler = MCMC(NUTS(make()), num_warmup=draws, num_samples=draws, progress_bar=False)
        return [_chain(sampler, key) for key in jax.random.split(jax.random.key(0), chains)]


def _chain(sampler: MCMC, key: jax.Array) -> dict[str, jax.Array]:
    sampler.run(key)
    return jax.block_until_ready(sampler.get_samples())


def posterior_draws(guide: Any, params: Any, count: int) -> dict[str, Any]:
    """Draws of all sites."""
    return guide.sample_posterior(jax.random.key(1), params, sample_shape=(count,))


def automatic(name: str, make: Callable[[], Callable], steps: int, rate: Callable) -> tuple:
    """A guide of the host, trained by its own ELBO of one draw, and its parameters.

    Args:
        name: of the guide.
        make: the model to approximate.
        steps: of Adam.
        rate: of learning, by the step.
    """
    model = make()
    guide = getattr(autoguide, name)(model)
    svi = SVI(model, guide, Adam(rate), Trace_ELBO())
    return guide, svi.run(jax.random.key(0), steps, progress_bar=False).params


def activation(name: str) -> Callable[[jax.Array], jax.Array]:
    exact = partial(jax.nn.gelu, approximate=False)
    gelus = {"gelu": exact, "gelu (erf)": exact, "gelu (tanh)": jax.nn.gelu}
    return gelus.get(name) or getattr(jax.nn, name)


def network(sizes: tuple[int, ...], activation: Callable = jax.nn.relu) -> Callable:
    """A fully connected network with standard normal priors on all weights."""
    host = sys.modules[__name__]  # whose functions the network calls
    return partial(perceptron, host, standard(host), sizes, activation=activation)


def by_fan_in(site: dict) -> jax.Array:
    """Weights N(0, 1/fan-in), biases 0."""
    shape = site["fn"].event_shape
    if len(shape) == 1:
        return np.zeros(shape)
    return jax.random.normal(site["kwargs"]["rng_key"], shape) * shape[0] ** -0.5


def elbo_step(
    elbo: ELBO, guide: Callable, model: Callable, data: tuple, **options: Any
) -> tuple[Step, float]:
    """One loss with its gradients, as an SVI step computes them, and the seconds of compiling."""
    svi = SVI(model, guide(model, **{"init_scale": 0.05} | options), Adam(1e-3), elbo)
    state = svi.init(jax.random.key(0), *data)

    def loss(parameters: dict, key: jax.Array, *data: jax.Array) -> jax.Array:
        constrained = svi.constrain_fn(parameters)
        return svi.loss.loss(key, constrained, svi.model, svi.guide, *data)

    gradients = jax.value_and_grad(loss)
    return timed(gradients, svi.optim.get_params(state.optim_state), state.rng_key, *data)


def updates(
    count: int, elbo: ELBO, guide: Callable, model: Callable, data: tuple
) -> tuple[Step, float]:
    """So many updates with Adam, one after another in a scan."""
    svi = SVI(model, guide(model, init_scale=0.05), Adam(1e-3), elbo)
    start = svi.init(jax.random.key(0), *data)

    def run(state: Any, x: jax.Array, y: jax.Array) -> Any:
        return jax.lax.scan(lambda now, _: svi.update(now, x, y), state, length=count)

    return timed(run, start, *data)


def plain_step(sizes: tuple[int, ...], activation: Callable, data: tuple) -> tuple[Step, float]:
    """Cross entropy of a network without distributions, with its gradients."""
    return _plain(network(sizes, activation), data)


def plain_convolutional(layers: Any, data: tuple) -> tuple[Step, float]:
    """The same of convolutions."""
    return _plain(partial(convolutional, sys.modules[__name__], layers), data)


def _plain(outputs: Callable, data: tuple) -> tuple[Step, float]:
    def loss(parameters: dict, x: jax.Array, y: jax.Array) -> jax.Array:
        with numpyro.handlers.block():
            logits = numpyro.handlers.substitute(outputs, parameters)(x)
        log_probabilities = jax.nn.log_softmax(logits)
        return -np.sum(np.take_along_axis(log_probabilities, y[:, None], axis=-1))

    trace = numpyro.handlers.trace(numpyro.handlers.seed(outputs, jax.random.key(1)))
    sites = trace.get_trace(data[0])
    scale = 0.05  # of a usual initialisation
    parameters = {name: scale * site["value"] for name, site in sites.items()}
    return timed(jax.value_and_grad(loss), parameters, *data)


def timed(function: Callable, *arguments: Any) -> tuple[Step, float]:
    """A jitted function, and the seconds of its tracing and compiling."""
    step = jax.jit(function)
    start = time.perf_counter()
    jax.block_until_ready(step(*arguments))
    return partial(_finished, step, *arguments), time.perf_counter() - start


def _finished(step: Callable, *arguments: Any) -> Any:
    return jax.block_until_ready(step(*arguments))


def peak(step: Step) -> None:
    """XLA does not say."""


def workspace(step: Step) -> int:
    """Bytes that XLA takes for the intermediate results of a step that :func:`timed` made."""
    function, *arguments = step.args
    return function.lower(*arguments).compile().memory_analysis().temp_size_in_bytes


class Training:
    """A network that is being trained, from the start of its split; some updates in a scan."""

    def __init__(
        self, elbo: ELBO, guide: Callable, model: Callable, split: Split, rate: float, scale: float
    ) -> None:
        self.x, self.y = np.asarray(split.x), np.asarray(split.y)
        start = init_to_value(values=split.start())
        made = guide(model, init_loc_fn=start, init_scale=scale)
        self.svi, rows = SVI(model, made, Adam(rate), elbo), np.zeros((EVERY, BATCH), int)
        key = jax.random.key(split.number)
        self.state = self.svi.init(key, self.x[:BATCH], self.y[:BATCH])
        self.run = jax.jit(self._updates).lower(self.state, self.x, self.y, rows).compile()

    def _updates(self, state: Any, x: jax.Array, y: jax.Array, batches: jax.Array) -> Any:
        def update(now: Any, rows: jax.Array) -> tuple[Any, None]:
            return self.svi.update(now, x[rows], y[rows])[0], None

        return jax.lax.scan(update, state, batches)[0]

    def advance(self, batches: numpy.ndarray) -> None:
        rows = np.asarray(batches, int)
        self.state = jax.block_until_ready(self.run(self.state, self.x, self.y, rows))

    def posterior(self) -> dict[str, tuple]:
        """Locations and scales by site."""
        return located(self.svi.get_params(self.state))
