"""BlackJAX's `laplace_marginal_factory` on the models of `nested_models`, which NumPyro runs here.

Seconds: its NUTS on the Laplace marginal, 1000 draws after 500 of `window_adaptation`, of
hyperparameters alone; the second call has nothing to compile. Errors have none of draws: the
marginal itself, on the points of the reference.
"""

from types import SimpleNamespace

import blackjax
import jax
import jax.numpy as jnp
import nested_peers
import nested_peers_grid as grid
import numpy as np
import numpyro
import numpyro.distributions as dist
from covariances import SHORT, SHORT_WARM_UP
from nested_models import MODELS
from numpyro.infer.util import log_density

HOST = SimpleNamespace(
    np=jnp, dist=dist, sample=numpyro.sample, plate=numpyro.plate, factor=numpyro.factor
)
ITERATIONS = 100  # of L-BFGS, as in its documentation


def sampled(name):
    """Errors of the marginal, seconds of draws, and what the draws say of themselves."""
    jax.config.update("jax_enable_x64", True)
    case = MODELS[name]()
    log_joint, start = joint(case)
    laplace = blackjax.mcmc.laplace_marginal.laplace_marginal_factory(
        log_joint, start, maxiter=ITERATIONS
    )
    axes = grid.axes(nested_peers.reference(name))
    at_points = jax.jit(lambda points: jax.lax.map(lambda phi: at(laplace, phi), points))
    logs, unfinished = map(np.asarray, at_points(jnp.asarray(grid.points(axes))))
    found = grid.errors(name, case, axes, logs)
    found["points with an unfinished search"] = int(unfinished.sum())
    yield found
    marginal = lambda phi: laplace(phi)[0]  # noqa: E731
    run = jax.jit(lambda key: draws(marginal, jnp.zeros(len(case.over)), key))
    (_, divergent), seconds = nested_peers.twice(
        lambda: jax.block_until_ready(run(jax.random.key(0)))
    )
    yield found | {"seconds": seconds, "divergent": int(divergent)}


def at(laplace, phi):
    """The log marginal, and whether the search for the mode used all its iterations."""
    return laplace(phi)[0], laplace.solve_theta_with_info(phi)[1].hit_maxiter


def joint(case):
    """log p(field, hyperparameters, data), these on the unconstrained scale; a start."""
    model, data = case.make(HOST), tuple(map(jnp.asarray, case.data))
    seeded = numpyro.handlers.seed(model, jax.random.key(0))
    sites = numpyro.handlers.trace(seeded).get_trace(*data)
    latent = {
        name: site
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    transforms = [dist.biject_to(latent[name]["fn"].support) for name in case.over]

    def log_joint(field, phi):
        pairs = list(zip(case.over, transforms, phi, strict=True))
        values = {name: transform(part) for name, transform, part in pairs}
        slopes = [transform.log_abs_det_jacobian(u, values[name]) for name, transform, u in pairs]
        return log_density(model, data, {}, {**field, **values})[0] + sum(slopes)

    start = {
        name: jnp.zeros(site["value"].shape)
        for name, site in latent.items()
        if name not in case.over
    }
    return log_joint, start


def draws(log_density, start, key):
    """Draws of NUTS, adapted before, and how many of them diverged."""
    first, second = jax.random.split(key)
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, parameters), _ = adaptation.run(first, start, num_steps=SHORT_WARM_UP)
    kernel = blackjax.nuts(log_density, **parameters).step

    def step(state, key):
        state, info = kernel(key, state)
        return state, (state.position, info.is_divergent)

    _, (positions, divergent) = jax.lax.scan(step, state, jax.random.split(second, SHORT))
    return positions, divergent.sum()
