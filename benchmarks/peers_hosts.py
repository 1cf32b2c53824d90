"""Contenders of `peers.py` and `peers_uci.py` in both hosts: this library, AutoNormal, NUTS."""

import functools
import itertools
from functools import partial

import models
import numpy as np
from peers import DRAWS, HIDDEN, RATE, WEIGHT_SCALE, Found, of_draws, timed, until_flat

STEPS, CHAIN = 2000, {"uci": 250}  # of Adam, as many as `fit` makes; draws of NUTS if not DRAWS


def model(host, task):
    """A line; one hidden layer; one that gives mean and log variance."""
    if task == "regression":
        return models.regression_by(host, models.linear(host))

    def prior(shape):
        return host.dist.Normal(0.0, WEIGHT_SCALE[task]).expand(list(shape)).to_event(len(shape))

    def network(outputs, x):
        return models.perceptron(host, prior, (x.shape[-1], HIDDEN[task], outputs), x)

    if task == "network":
        return models.regression_by(host, lambda x: network(1, x)[..., 0])
    return models.observed(host, partial(network, 2), "heteroscedastic")


def of_sites(task, seconds, data, draws, deviations=None):
    """What draws of the sites say of the test rows."""
    draws = {name: np.asarray(part) for name, part in draws.items()}
    if task == "regression":
        means = draws["weights"] @ data.x_test.T + draws["bias"].reshape(-1, 1)
        return of_draws(seconds, data, means, draws["scale"].reshape(-1, 1), deviations)
    hidden, uci, count = data.x_test, task == "uci", len(draws["bias0"])
    sizes = data.x.shape[1], HIDDEN[task], 2 if uci else 1
    for place, shape in enumerate(itertools.pairwise(sizes)):
        weight = draws[f"weight{place}"].reshape(count, *shape)
        hidden = (np.maximum(hidden, 0) if place else hidden) @ weight
        hidden = hidden + draws[f"bias{place}"].reshape(count, 1, -1)
    scales = np.exp(0.5 * hidden[..., 1]) if uci else draws["scale"].reshape(-1, 1)
    return of_draws(seconds, data, hidden[..., 0], scales)


def tensors(host, data):
    """The rows as a host takes them, after the random state of the split."""
    host.fresh(data.number)
    convert = host.array if host.NAME == "Pyro" else np.asarray  # JAX drops what is double
    return [convert(part) for part in (data.x, data.y, data.x_test, data.y_test)]


def ours(host, task, data, **options):
    """All defaults for the UCI sets; Newton's method and linear response of the regression, L-BFGS
    of the network."""
    x, y, x_test, y_test = tensors(host, data)
    program, package = model(host, task), host.package
    options |= {"seed": data.number, "progress_bar": False}
    if task != "uci":
        method = "newton" if task == "regression" else "lbfgs"
        options = {"method": method, "float64": True, "by_draws": False}

    def run():
        result = package.fit(program, package.DVIGuide(), x, y, **options)
        linear = task == "regression"
        return result, package.linear_response(program, result, x, y) if linear else None

    (result, response), seconds = timed(run)
    found = response.predict(x_test) if response else package.predict(program, result, x_test)
    deviations = response.standard_deviation("weights") if response else None
    density, interval = found["obs"].log_prob(y_test), found["obs"].interval(0.9)
    if host.NAME == "Pyro":
        density, interval = density.detach(), [end.detach() for end in interval]
    return Found(seconds, density, interval, deviations)


compiling = functools.cache(lambda elbo: elbo(compiled=True))  # one objective for all splits


def compiled(host, task, data):
    """All defaults but one: the loss is compiled, once for all splits of a set."""
    return ours(host, task, data, objective=compiling(host.package.DeterministicELBO))


def autonormal_pyro(host, task, data):
    """Adam on a draw a step."""
    x, y, _, _ = (part.float() for part in tensors(host, data))
    program = model(host, task)
    guide = host.infer.autoguide.AutoNormal(program)
    adam = host.pyro.optim.Adam({"lr": RATE})
    svi = host.SVI(program, guide, adam, host.infer.TraceMeanField_ELBO())
    _, seconds = timed(lambda: until_flat(lambda: svi.step(x, y)))
    draws = [guide() for _ in range(DRAWS)]
    drawn = {name: np.stack([one[name].detach() for one in draws]) for name in draws[0]}
    deviations = guide.scales.weights.detach() if task == "regression" else None
    return of_sites(task, seconds, data, drawn, deviations)


def autonormal_numpyro(host, task, data):
    """Adam on a draw a step, of a UCI set as many steps as ours makes: there it starts where Pyro's
    AutoNormal does; from NumPyro's own start, uniform in ±2, the loss of yacht overflows to NaN."""
    jax, arguments, program = host.jax, (data.x, data.y), model(host, task)
    start = {"init_loc_fn": host.infer.init_to_feasible} if task == "uci" else {}
    guide = host.autoguide.AutoNormal(program, **start)
    svi = host.SVI(program, guide, host.Adam(RATE), host.infer.TraceMeanField_ELBO())
    key = jax.random.key(data.number)

    def run():
        if task == "uci":
            trained = svi.run(key, STEPS, *arguments, progress_bar=False)
            return jax.block_until_ready(trained.params)
        states, update = [svi.init(key, *arguments)], jax.jit(svi.update)

        def step():
            states[0], loss = update(states[0], *arguments)
            return float(loss)

        until_flat(step)
        return svi.get_params(states[0])

    params, seconds = timed(run)
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,))
    return of_sites(task, seconds, data, draws, params.get("weights_auto_scale"))


def nuts(host, task, data):
    """One chain of exact draws."""
    count = CHAIN.get(task, DRAWS)
    kernel = host.NUTS(model(host, task))
    chain = host.MCMC(kernel, num_warmup=count, num_samples=count, progress_bar=False)
    key = host.jax.random.key(data.number)
    samples, seconds = timed(lambda: host.chain(chain, key, data.x, data.y))
    deviations = samples["weights"].std(0) if task == "regression" else None
    return of_sites(task, seconds, data, samples, deviations)
