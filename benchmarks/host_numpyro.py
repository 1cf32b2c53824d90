"""NumPyro: what models call, fits, draws, and steps under jax.jit, as in `host_pyro`."""

import sys
import time
from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as np
import numpy
import numpyro
import numpyro.distributions
from models import perceptron, standard
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, autoguide
from numpyro.optim import Adam

import numpyro_moments
from numpyro_moments.evaluation.programs import QUICK
from numpyro_moments.objectives.base import Program

NAME, BY = "NumPyro", "median"
package, infer, dist = numpyro_moments, numpyro.infer, numpyro.distributions
sample, plate, factor = numpyro.sample, numpyro.plate, numpyro.factor
deterministic, scale = numpyro.deterministic, numpyro.handlers.scale
array, init_to_value = np.asarray, numpyro.infer.init_to_value
relu, gelu, standardise = jax.nn.relu, jax.nn.gelu, jax.nn.standardize
sigmoid, softmax, scan = jax.nn.sigmoid, jax.nn.softmax, jax.lax.scan
doubles, own_parameters = partial(jax.enable_x64, True), nullcontext


def convolved(x, weight, stride):
    """Images [n, channels, ...] convolved with a weight, without padding."""
    return jax.lax.conv(x, weight, (stride, stride), "VALID")


def normal(seed, *shape):
    """Standard normal numbers."""
    return jax.random.normal(jax.random.key(seed), shape)


def simulated(model, *data):
    """What a model returns for data."""
    return numpyro.handlers.seed(model, jax.random.key(1))(*data)


def fresh(seed=0):
    """Parameters of earlier fits are nowhere."""


def forget():
    """Drop compiled programs: those of many models are more than a process may map."""
    # what is no longer waited for would go on in the background, beside what is timed next
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.clear_caches()


def located(params):
    """Locations and scales of a mean-field guide by site, of its parameters."""
    names = [name.removesuffix("_auto_loc") for name in params if name.endswith("_auto_loc")]
    part = lambda name, what: numpy.asarray(params[f"{name}_auto_{what}"])  # noqa: E731
    return {name: (part(name, "loc"), part(name, "scale")) for name in names}


def terms_by_draws(objective, model, fit, data, count, times):
    """Terms of an objective by so many particles at once, so many times; compiled once."""
    by_draws, program = objective.by_draws(count), Program(model, fit.guide, data, {}, fit.params)
    terms = jax.jit(lambda key: by_draws.particle_terms(key, program)[0], compiler_options=QUICK)
    keys = jax.random.split(jax.random.key(1), times)
    return [tuple(numpy.asarray(part, numpy.float64) for part in terms(key)) for key in keys]


def losses(model, data, samples, steps):
    """Closed-form loss after training, and Trace_ELBO's loss for each draw [samples]."""
    guide = package.DVIGuide()
    svi = package.SVI(model, guide, package.DeterministicELBO())
    trained = svi.run(jax.random.key(0), steps, *data, progress_bar=False)
    sampled = over_draws(lambda key: Trace_ELBO().loss(key, trained.params, model, guide, *data))
    draws = sampled(jax.random.split(jax.random.key(1), samples))
    return float(jax.jit(svi.evaluate)(trained.state, *data)), numpy.asarray(draws, numpy.float64)


def over_draws(function):
    """A compiled function of arrays with draws on the first axis."""
    return jax.jit(jax.vmap(function))


def nuts(make, chains, draws):
    """Draw chain after chain, as ``MCMC`` runs them: each compiles anew, in every run."""
    with doubles():
        sampler = MCMC(NUTS(make()), num_warmup=draws, num_samples=draws, progress_bar=False)
        return [chain(sampler, key) for key in jax.random.split(jax.random.key(0), chains)]


def one_chain(model, data, warm_up, draws):
    """One chain of the sampler as it is by default."""
    sampler = MCMC(NUTS(model), num_warmup=warm_up, num_samples=draws, progress_bar=False)
    return chain(sampler, jax.random.key(0), *data)


def unconstrained_draws(model, data, centred, accepted, chains, warm_up, draws):
    """Draws [chains, draws, ...] by site on the unconstrained space.

    Sites named in ``centred`` are drawn by what they are made of, not centred.
    """
    configuration = dict.fromkeys(centred, infer.reparam.LocScaleReparam(0))
    drawn = numpyro.handlers.reparam(model, config=configuration)
    kernel = NUTS(drawn, target_accept_prob=accepted)
    options = {"num_chains": chains, "chain_method": "sequential", "progress_bar": False}
    sampler = MCMC(kernel, num_warmup=warm_up, num_samples=draws, **options)
    sampler.run(jax.random.key(0), *data)
    found, seeded = sampler.get_samples(group_by_chain=True), numpyro.handlers.seed(model, 0)
    sites = numpyro.handlers.trace(seeded).get_trace(*data)
    supports = {name: site["fn"].support for name, site in sites.items() if _is_latent(site)}
    return {
        name: numpy.asarray(dist.biject_to(support).inv(found[name]))
        for name, support in supports.items()
    }


def _is_latent(site):
    return site["type"] == "sample" and not site["is_observed"]


def chain(sampler, key, *data):
    """The draws of a sampler."""
    sampler.run(key, *data)
    return jax.block_until_ready(sampler.get_samples())


def posterior_draws(guide, params, count):
    """Draws of all sites."""
    return guide.sample_posterior(jax.random.key(1), params, sample_shape=(count,))


def automatic(name, make, steps, rate):
    """A guide of the host, trained on the model that is made by its own ELBO of one draw and Adam,
    with a rate by step, and its parameters."""
    model = make()
    guide = getattr(autoguide, name)(model)
    svi = SVI(model, guide, Adam(rate), Trace_ELBO())
    return guide, svi.run(jax.random.key(0), steps, progress_bar=False).params


def activation(name):
    exact = partial(jax.nn.gelu, approximate=False)
    gelus = {"gelu": exact, "gelu (erf)": exact, "gelu (tanh)": jax.nn.gelu}
    return gelus.get(name) or getattr(jax.nn, name)


def network(sizes, activation=jax.nn.relu):
    """A fully connected network with standard normal priors on all weights."""
    host = sys.modules[__name__]  # whose functions the network calls
    return partial(perceptron, host, standard(host), sizes, activation=activation)


def by_fan_in(site):
    """Weights N(0, 1/fan-in), biases 0."""
    shape = site["fn"].event_shape
    if len(shape) == 1:
        return np.zeros(shape)
    return jax.random.normal(site["kwargs"]["rng_key"], shape) * shape[0] ** -0.5


def elbo_step(elbo, guide, model, data, **options):
    """One loss with its gradients, as an SVI step computes them, and the seconds of compiling."""
    svi = SVI(model, guide(model, **{"init_scale": 0.05} | options), Adam(1e-3), elbo)
    state = svi.init(jax.random.key(0), *data)

    def loss(parameters, key, *data):
        constrained = svi.constrain_fn(parameters)
        return svi.loss.loss(key, constrained, svi.model, svi.guide, *data)

    gradients = jax.value_and_grad(loss)
    return timed(gradients, svi.optim.get_params(state.optim_state), state.rng_key, *data)


def updates(count, elbo, guide, model, data):
    """So many updates with Adam, one after another in a scan."""
    svi = SVI(model, guide(model, init_scale=0.05), Adam(1e-3), elbo)
    start = svi.init(jax.random.key(0), *data)

    def run(state, x, y):
        return scan(lambda now, _: svi.update(now, x, y), state, length=count)

    return timed(run, start, *data)


def plain_step(layers, network, data):
    """Cross entropy of a network without distributions, with its gradients."""

    def loss(parameters, x, y):
        with numpyro.handlers.block():
            logits = numpyro.handlers.substitute(network, parameters)(x)
        log_probabilities = jax.nn.log_softmax(logits)
        return -np.sum(np.take_along_axis(log_probabilities, y[:, None], axis=-1))

    trace = numpyro.handlers.trace(numpyro.handlers.seed(network, jax.random.key(1)))
    sites = trace.get_trace(data[0])
    scale = 0.05  # of a usual initialisation
    parameters = {name: scale * site["value"] for name, site in sites.items()}
    return timed(jax.value_and_grad(loss), parameters, *data)


def plain_dropout(count, sizes, rate, data):
    """So many updates in a scan of a network with dropout of inputs and units, and two heads."""
    import optax
    from flax import linen as nn

    _, units, outputs = sizes
    dropout = partial(nn.Dropout, rate, deterministic=False)
    net = nn.Sequential([dropout(), nn.Dense(units), nn.relu, dropout(), nn.Dense(outputs)])
    start = net.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, data[0])
    adam = optax.adam(1e-3)

    def loss(params, key, x, y):
        mean, log_variance = np.moveaxis(net.apply(params, x, rngs={"dropout": key}), -1, 0)
        density = dist.Normal(mean, np.exp(0.5 * log_variance)).log_prob(y)
        decay = sum(np.sum(part**2) for part in jax.tree.leaves(params))
        return 0.5 * decay - np.sum(density)

    def run(state, x, y):
        def update(now, _):
            (params, moments, key), draw = now, jax.random.split(now[2])[0]
            value, slope = jax.value_and_grad(loss)(params, draw, x, y)
            change, moments = adam.update(slope, moments, params)
            return (optax.apply_updates(params, change), moments, jax.random.split(key)[1]), value

        return scan(update, state, length=count)

    return timed(run, (start, adam.init(start), jax.random.key(0)), *data)[0]


def timed(function, *arguments):
    """A jitted function, and the seconds of its tracing and compiling."""
    step = jax.jit(function)
    start = time.perf_counter()
    jax.block_until_ready(step(*arguments))
    return partial(_finished, step, *arguments), time.perf_counter() - start


def _finished(step, *arguments):
    return jax.block_until_ready(step(*arguments))


def peak(step):
    """XLA does not say."""


def workspace(step):
    """Bytes that XLA takes for the intermediate results of a step that :func:`timed` made."""
    function, *arguments = step.args
    return function.lower(*arguments).compile().memory_analysis().temp_size_in_bytes


class Training:
    """A network that is being trained, from the start of its split; some updates in a scan."""

    def __init__(self, elbo, guide, model, split, rate, scale):
        self.x, self.y = np.asarray(split.x), np.asarray(split.y)
        start, first = init_to_value(values=split.start()), slice(split.batch)
        self.svi = SVI(model, guide(model, init_loc_fn=start, init_scale=scale), Adam(rate), elbo)
        self.state = self.svi.init(jax.random.key(split.number), self.x[first], self.y[first])
        rows = np.zeros((split.every, split.batch), int)
        self.run = jax.jit(self._updates).lower(self.state, self.x, self.y, rows).compile()

    def _updates(self, state, x, y, batches):
        def update(now, rows):
            return self.svi.update(now, x[rows], y[rows])[0], None

        return scan(update, state, batches)[0]

    def advance(self, batches):
        rows = np.asarray(batches, int)
        self.state = jax.block_until_ready(self.run(self.state, self.x, self.y, rows))

    def posterior(self):
        """Locations and scales by site."""
        return located(self.svi.get_params(self.state))
