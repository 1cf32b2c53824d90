"""Pyro: what models call, fits, draws, and steps. `host_numpyro` has the same names."""

import itertools
import time
from functools import partial

import numpy
import pyro
import pyro.distributions
import torch
import torch.nn.functional as F
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.nn import PyroModule, PyroSample
from pyro.optim import LambdaLR
from torch import nn
from torch.autograd.profiler import profile
from torch.distributions import transform_to

import pyro_moments
from pyro_moments.fitting.parameters import double_precision
from pyro_moments.objectives.base import Program

NAME, BY = "Pyro", "minimum"  # of repeats: what disturbs a step makes it slower
package, infer, dist, np = pyro_moments, pyro.infer, pyro.distributions, torch
sample, plate, factor, deterministic = pyro.sample, pyro.plate, pyro.factor, pyro.deterministic
scale, init_to_value = pyro.poutine.scale, pyro.infer.autoguide.init_to_value
own_parameters = partial(pyro.settings.context, module_local_params=True)
array, relu, gelu, doubles = torch.as_tensor, torch.relu, F.gelu, double_precision
sigmoid, softmax = torch.sigmoid, partial(torch.softmax, dim=-1)
over_draws = torch.func.vmap


def standardise(x):
    """Units with mean 0 and variance 1 in each row, as layer normalisation makes them."""
    return F.layer_norm(x, x.shape[-1:])


def convolved(x, weight, stride):
    """Images [n, channels, ...] convolved with a weight, without padding."""
    return F.conv2d(x, weight, None, stride)


def normal(seed, *shape):
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def simulated(model, *data):
    """What a model returns for data."""
    pyro.set_rng_seed(1)
    return model(*data)


def fresh(seed=0):
    """Forget the parameters of earlier fits."""
    pyro.clear_param_store()
    pyro.set_rng_seed(seed)


def forget():
    """Nothing is compiled that could be forgotten."""


def terms_by_draws(objective, model, fit, data, count, times):
    """Terms of an objective by so many particles at once, so many times."""
    by_draws, program = objective.by_draws(count), Program(model, fit.guide, data, {})
    with torch.no_grad():
        terms = [by_draws.particle_terms(program) for _ in range(times)]
    return [tuple(part.double().numpy() for part in one) for one in terms]


def losses(model, data, samples, steps):
    """Closed-form loss after training, and Trace_ELBO's loss for each draw [samples]."""
    fresh()
    guide, elbo, sampled = package.DVIGuide(), package.DeterministicELBO(), Trace_ELBO()
    svi = package.SVI(model, guide, elbo)
    svi.step(*data)
    with pyro.validation_enabled(False):  # the first step has checked the program
        for _ in range(steps - 1):
            svi.step(*data)
        with torch.no_grad():
            draws = numpy.array([sampled.loss(model, guide, *data) for _ in range(samples)])
    return elbo.loss(model, guide, *data), draws


def scan(step, state, inputs):
    """``jax.lax.scan``, as the loop that it is in torch."""
    outputs = []
    for now in zip(*inputs, strict=True) if isinstance(inputs, tuple) else inputs:
        state, output = step(state, now)
        outputs.append(output)
    return state, torch.stack(outputs)


def nuts(make, chains, draws):
    """Draw chain after chain: of several, ``MCMC`` makes processes where there are processors."""
    result = []
    for _ in range(chains):
        kernel = NUTS(make(), max_plate_nesting=1, init_strategy=_anywhere)
        sampler = MCMC(kernel, draws, draws, disable_progbar=True)
        sampler.run()
        result.append(sampler.get_samples())
    return result


def one_chain(model, data, warm_up, draws):
    """One chain of the sampler as it is by default."""
    sampler = MCMC(NUTS(model), draws, warm_up, disable_progbar=True)
    sampler.run(*data)
    return sampler.get_samples()


def posterior_draws(guide, params, count):
    """Draw all at once, in a plate left of the models' own."""
    with torch.no_grad(), pyro.plate("draws", count, dim=-2):
        values = guide()
    flat = {name: value.reshape(count, -1) for name, value in values.items()}
    return {name: value[:, 0] if value.shape[1] == 1 else value for name, value in flat.items()}


def automatic(name, make, steps, rate):
    """A guide of the host, trained on the model that is made by its own ELBO of one draw and Adam,
    with a rate by step, and its parameters."""
    fresh()
    model = make()
    guide = getattr(infer.autoguide, name)(model, init_loc_fn=_anywhere)
    schedule = {"optimizer": torch.optim.Adam, "optim_args": {"lr": 1.0}, "lr_lambda": rate}
    optimiser = LambdaLR(schedule)
    svi = SVI(model, guide, optimiser, Trace_ELBO())
    for _ in range(steps):
        svi.step()
        optimiser.step()
    return guide, None


def _anywhere(site):
    """Pyro's ``init_to_uniform``, but for its draw from the prior: flat ones have none."""
    unconstrained = 4 * torch.rand(site["fn"].shape(), dtype=torch.float64) - 2
    return transform_to(site["fn"].support)(unconstrained)


class Network(PyroModule):
    """Fully connected network with standard normal priors on all weights."""

    def __init__(self, sizes, activation=torch.relu):
        super().__init__()
        self.activation = activation
        self.layers = PyroModule[nn.ModuleList](itertools.starmap(layer, itertools.pairwise(sizes)))

    def forward(self, x):
        *hidden, last = self.layers
        for module in hidden:
            x = self.activation(module(x))
        return last(x)


network = Network


def layer(inputs, outputs):
    linear, normal = PyroModule[nn.Linear](inputs, outputs), dist.Normal(0.0, 1.0)
    linear.weight = PyroSample(normal.expand([outputs, inputs]).to_event(2))
    linear.bias = PyroSample(normal.expand([outputs]).to_event(1))
    return linear


def activation(name):
    return getattr(F, name)


def by_fan_in(site):
    """Weights N(0, 1/fan-in), biases 0."""
    shape = site["fn"].event_shape
    return torch.randn(shape) * shape[-1] ** -0.5 if len(shape) > 1 else torch.zeros(shape)


def elbo_step(elbo, guide, model, data, **options):
    """One loss with its gradients, as an SVI step computes them, and the seconds of the first."""
    torch.manual_seed(0)
    made = guide(model, **{"init_scale": 0.05} | options)
    start = time.perf_counter()
    elbo.loss_and_grads(model, made, *data)  # the guide makes its parameters
    first = time.perf_counter() - start
    if getattr(elbo, "compiled", None):
        print(f"compiling took {first:.0f} s")
    parameters = list(made.parameters())

    def step():
        for parameter in parameters:
            parameter.grad = None
        with pyro.poutine.trace(param_only=True):
            elbo.loss_and_grads(model, made, *data)

    return step, first


def updates(count, elbo, guide, model, data):
    """A step of Pyro's SVI by its Adam."""
    made, adam = guide(model, init_scale=0.05), pyro.optim.Adam({"lr": 1e-3})
    return timed(pyro.infer.SVI(model, made, adam, elbo).step, *data)


def plain_step(layers, network, data):
    """Cross entropy of layers without distributions, dense or convolutions, with its gradients."""
    kinds = {2: nn.Linear, 4: nn.Conv2d}
    parts = [part for layer in layers for part in (kinds[len(layer)](*layer), nn.ReLU())]
    plain, (x, y) = nn.Sequential(*parts[:-1], nn.Flatten()), data

    def step():
        plain.zero_grad()
        F.cross_entropy(plain(x), y).backward()

    return step, 0.0


def plain_dropout(count, sizes, rate, data):
    """A loss with its gradients of a network with dropout of inputs and units, and two heads."""
    inputs, units, outputs = sizes
    parts = nn.Dropout(rate), nn.Linear(inputs, units), nn.ReLU()
    net, (x, y) = nn.Sequential(*parts, nn.Dropout(rate), nn.Linear(units, outputs)), data

    def step():
        net.zero_grad()
        mean, log_variance = net(x).unbind(-1)
        density = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance)).log_prob(y)
        decay = sum(part.square().sum() for part in net.parameters())
        (0.5 * decay - density.sum()).backward()

    return step


def timed(function, *arguments):
    """Nothing is compiled."""
    return partial(function, *arguments), 0.0


def peak(step):
    """Bytes that one loss with its gradients needs at most, above what is there before."""
    step()  # the guide makes its parameters, and their gradients
    with profile(profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    live = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        highest = max(highest, live)
    return highest


workspace = peak


class Training:
    """A network that is being trained, from the start of its split."""

    def __init__(self, elbo, guide, model, split, rate, scale):
        pyro.set_rng_seed(split.number)
        self.x, self.y = torch.as_tensor(split.x), torch.as_tensor(split.y)
        values = {name: torch.as_tensor(value) for name, value in split.start().items()}
        self.guide = guide(model, init_loc_fn=init_to_value(values=values), init_scale=scale)
        self.names, first = list(values), slice(split.batch)
        elbo.loss_and_grads(model, self.guide, self.x[first], self.y[first])  # compiles
        self.guide.zero_grad()
        self.svi = pyro.infer.SVI(model, self.guide, pyro.optim.Adam({"lr": rate}), elbo)

    def advance(self, batches):
        for rows in torch.as_tensor(batches):
            self.svi.step(self.x[rows], self.y[rows])

    @torch.no_grad()
    def posterior(self):
        """Locations and scales by site."""
        parts = self.guide.locs, self.guide.scales
        return {name: tuple(getattr(part, name).numpy() for part in parts) for name in self.names}
