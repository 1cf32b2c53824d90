"""Guides of the grid at given posteriors, and their losses' closed form."""

import itertools
import runpy
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pyro.infer.autoguide

from tests.checks.jaxprs import by_numpy
from tests.propagation.oracle import (
    cavity_energy,
    divergence_of_vector,
    energy,
    expected,
    renyi_bound,
)
from tests.response.models import mean_field

TABLE = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "docs" / "grid.py")))
ROWS, INPUTS, HIDDEN, NOISE, P, ALPHA = 4, 3, 5, 0.6, 0.3, 0.5
TAU, RHO = 0.7, -0.45
_random = np.random.default_rng(3)
X = _random.normal(size=(ROWS, INPUTS)) / 2
Y = X @ [0.4, -1.0, 0.7] + 0.2 + NOISE * _random.normal(size=ROWS)
DESIGN = np.concatenate([np.ones((ROWS, 1)), X], axis=1)  # of the bias and the weight
LOC, SCALE = np.array([0.3, 0.4, -0.8, 0.6]), np.array([0.4, 0.7, 0.6, 0.8])
SLOPE = np.array([0.3, -0.4, 0.2])  # of the hand-written weight on the bias
TRIL = 0.6 * (np.tril(0.4 * _random.normal(size=(4, 4)), -1) + np.eye(4))
SITES = {"bias": (LOC[0], SCALE[0]), "weight": (LOC[1:], SCALE[1:])}


def linear(host):
    """Observations that are linear in all latent sites."""

    def model(x, y):
        bias = host.language.sample("bias", host.dist.Normal(0.0, 1.0))
        loc = x @ host.weight() + bias
        host.observe(x, host.dist.Normal(loc, NOISE), y)

    return model


def network(host):
    """3-5-1, tanh."""

    def model(x, y):
        def weight(name, *shape):
            prior = host.dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
            return host.language.sample(name, prior)

        hidden = host.np.tanh(x @ weight("a", INPUTS, HIDDEN) + weight("b", HIDDEN))
        loc = (hidden @ weight("c", HIDDEN, 1) + weight("d", 1))[:, 0]
        host.observe(x, host.dist.Normal(loc, NOISE), y)

    return model


def by_hand(host, sites, slopes):
    """Normal sites (location, scale), sloped on the first, with own parameters."""
    param, positive = host.language.param, host.dist.constraints.positive

    def guide(x, y):
        first = None
        for name, (loc, scale) in sites.items():
            loc = param(f"{name}.loc", host.array(loc))
            scale = param(f"{name}.scale", host.array(scale), constraint=positive)
            mean = loc + host.array(slopes[name]) * first if name in slopes else loc
            posterior = host.dist.Normal(mean, scale).to_event(len(loc.shape))
            value = host.language.sample(name, posterior)
            first = value if first is None else first

    return guide


def guide_of(host, name, model):
    """A guide of the table for the linear model, and its parameters."""
    if name == "hand-written":
        parts = {f"{site}.{part}": host.array(value) for site, part, value in _parts()}
        return by_hand(host, SITES, {"weight": SLOPE}), parts
    if name == "AutoMultivariateNormal":
        values, options = {"loc": LOC, "scale_tril": TRIL}, {}
        prefix = {"numpyro": "auto_", "pyro": f"{name}."}[host.name]
        if host.name == "pyro":
            scale = np.diagonal(TRIL)
            values = {"scale": scale, "scale_tril": TRIL / scale[:, None]}
            start = {site: host.array(loc) for site, (loc, _) in SITES.items()}
            options = {"init_loc_fn": pyro.infer.autoguide.init_to_value(values=start)}
        params = {prefix + part: host.array(value) for part, value in values.items()}
        return host.autoguide.AutoMultivariateNormal(model, **options), params
    params = {
        key.replace("DVIGuide", name): value for key, value in mean_field(host, **SITES).items()
    }
    if name == "AutoNormal":
        return host.autoguide.AutoNormal(model), params
    if name == "GaussianGuide":
        return host.package.GaussianGuide(), gaussian(host)
    if name == "TridiagonalGuide":
        del params[next(key for key in params if "scale" in key and "weight" in key)]
        names = {"numpyro": "weight_auto_{}", "pyro": "TridiagonalGuide.{}s.weight"}[host.name]
        params |= {names.format("tau"): host.array(TAU)}
        return host.package.TridiagonalGuide(scales="proportional"), params | {
            names.format("correlation"): host.array(RHO)
        }
    if name == "MCDropoutGuide":
        params = {key: value for key, value in params.items() if "scale" not in key}
        return host.package.MCDropoutGuide(p=P), params
    return host.package.DVIGuide(), params


def gaussian(host):
    """Parameters of a GaussianGuide with the factor TRIL, by name."""
    scale = np.diagonal(TRIL)
    sites = {"bias": (LOC[0], scale[0]), "weight": (LOC[1:], scale[1:])}
    named = mean_field(host, **sites)
    params = {key.replace("DVIGuide", "GaussianGuide"): value for key, value in named.items()}
    name = {"numpyro": "_auto_factor", "pyro": "GaussianGuide.factor"}[host.name]
    below = np.tril_indices(len(LOC), -1)
    return params | {name: host.array((TRIL / scale[:, None])[below])}


def network_guide(host, name, model):
    """A guide of the table for the network, as it begins."""
    if name == "hand-written":
        shapes = {"a": (INPUTS, HIDDEN), "b": (HIDDEN,), "c": (HIDDEN, 1), "d": (1,)}
        random = np.random.default_rng(5)
        sites = {
            site: (random.normal(size=shape).astype("float32"), np.full(shape, 0.2, "float32"))
            for site, shape in shapes.items()
        }
        return by_hand(host, sites, {})
    package = host.package if hasattr(host.package, name) else host.autoguide
    return getattr(package, name)(model)


def loss_and_gradients(host, objective, model, guide):
    """The loss of a network, and its gradients in single precision."""
    x, y = (host.array(part.astype("float32")) for part in (X, Y))
    if host.name == "pyro":
        loss = objective.loss_and_grads(model, guide, x, y)
        store = pyro.get_param_store()
        parts = [part.grad for _, part in store.named_parameters()]
        return loss, [part.numpy() for part in parts if part is not None]
    svi = host.package.SVI(model, guide, objective)
    state = svi.init(jax.random.key(0), x, y)
    free = svi.optim.get_params(state.optim_state)

    def loss(free):
        params = svi.constrain_fn(free)
        return objective.loss(jax.random.key(1), params, model, svi.guide, x, y)

    value, gradients = by_numpy(jax.value_and_grad(loss))(free)
    return value, [np.asarray(part) for part in jax.tree.leaves(gradients)]


def _parts():
    for site, pair in SITES.items():
        yield from zip((site, site), ("loc", "scale"), pair, strict=True)


def objective_of(host, name, flow, particles):
    """An objective of the table."""
    options = TABLE.PROPAGATIONS[flow]
    if name != "DeterministicELBO":
        options = options | {"alpha": ALPHA}
    if flow == "sampled":
        options = options | {"num_particles": particles}
    if name == TABLE.CAVITY:
        return host.package.BBAlphaELBO(energy="cavity", **options)
    return getattr(host.package, name)(**options)


def exact(guide, flow, objective):
    """The expectation of the loss of the linear model, for many particles."""
    if guide == "MCDropoutGuide":
        return _exact_by_masks(flow, objective)
    mean, covariance = _moments(guide)
    if (of := {"RenyiELBO": renyi_bound, TABLE.CAVITY: cavity_energy}.get(objective)) is not None:
        return -of(ALPHA, DESIGN, Y, NOISE, mean, covariance)
    divergence = divergence_of_vector(mean, covariance)
    if flow == "mean":
        covariance = 0 * covariance
    gain = _gain(objective, DESIGN @ mean, np.diagonal(DESIGN @ covariance @ DESIGN.T))
    return divergence - gain


def _moments(guide):
    """Of bias and weight."""
    if guide in ("GaussianGuide", "AutoMultivariateNormal"):
        return LOC, TRIL @ TRIL.T
    covariance = np.diag(SCALE**2)
    if guide == "TridiagonalGuide":
        scale = np.concatenate([SCALE[:1], TAU * LOC[1:]])
        near = RHO * (np.eye(4, k=1) + np.eye(4, k=-1))
        near[0], near[:, 0] = 0, 0  # the bias is another site
        return LOC, np.outer(scale, scale) * (np.eye(4) + near)
    if guide != "hand-written":
        return LOC, covariance
    dependence = np.eye(4)
    dependence[1:, 0] = SLOPE
    return dependence @ LOC, dependence @ covariance @ dependence.T


def _gain(objective, means, variances):
    """Of all rows, with normal locations."""
    triples = [part[:, None] for part in (Y, means, variances)]
    rows = [(y, m, np.diag(v), NOISE) for y, m, v in zip(*triples, strict=True)]
    if objective == "DeterministicELBO":
        return sum(expected(*row) for row in rows)
    return sum(energy(ALPHA, *row) for row in rows)


def _exact_by_masks(flow, objective):
    """A weight that is dropped, with new masks for each row, and a bias that is a point."""
    bias, weight = LOC[0], LOC[1:]
    divergence = weight @ weight / (2 * (1 - P)) + 0.5 * (np.log(2 * np.pi) + bias**2)
    masks = np.array(list(itertools.product((0, 1), repeat=INPUTS)))
    chances = np.prod(np.where(masks, 1 - P, P), axis=1)
    locs = X @ (masks / (1 - P) * weight).T + bias  # [row, mask]
    mean = locs @ chances
    if flow != "mean" and objective == "BBAlphaELBO":
        logs = -0.5 * np.log(2 * np.pi * NOISE**2) - (Y[:, None] - locs) ** 2 / NOISE**2 / 2
        return divergence - np.log(np.exp(ALPHA * logs) @ chances).sum() / ALPHA
    variance = (locs - mean[:, None]) ** 2 @ chances
    return divergence - _gain(objective, mean, variance * (flow != "mean"))
