"""pymc-extras' INLA and DADVI on the models of `nested_models`, by the hosts of
`nested_peers_host`.

INLA: seconds are those of its 1000 draws of hyperparameters after 500 of tuning, which PyMC would
compile again; errors have none of draws: the marginal itself, on the points of the reference.
DADVI: a Normal for each number on the unconstrained scale, from its 30 fixed draws.
"""

import harness
import nested_peers
import nested_peers_grid as grid
import numpy as np
import pymc_extras
from covariances import SHORT, SHORT_WARM_UP
from nested import between
from nested_models import MODELS
from nested_peers_host import latent_vector, plain
from pymc_extras.model.marginal.marginalize import marginalize
from pytensor.tensor import as_tensor
from scipy.special import ndtr

OPTIONS = dict(progressbar=False, random_seed=0)
CHAIN = dict(draws=SHORT, tune=SHORT_WARM_UP, chains=1, cores=1, compute_convergence_checks=False)


def inla(name):
    """Errors of the marginal, and seconds of draws."""
    case = MODELS[name]()
    model, x, precision = latent_vector(case)
    marginal = marginalize(model, laplace_approx={x: as_tensor(precision)})
    density = marginal.compile_logp()
    values = ordered([part.name for part in marginal.value_vars], case.over)
    axes = grid.axes(nested_peers.reference(name))
    logs = [
        density(dict(zip(values, map(np.array, point), strict=True))) for point in grid.points(axes)
    ]
    found = grid.errors(name, case, axes, np.array(logs))
    yield found
    fit = lambda: pymc_extras.fit(  # noqa: E731
        method="INLA", model=model, x=x, Q=precision, **OPTIONS, **CHAIN
    )
    yield found | {"seconds": {"first": round(harness.clocked(fit)[1], 2)}}


def ordered(values, names):
    """Names of unconstrained values in the order of sites."""
    return [next(v for v in values if v == n or v.startswith(f"{n}_")) for n in names]


def dadvi(name):
    """Total variation of hyperparameters and elements, and seconds."""
    case, known = MODELS[name](), nested_peers.reference(name)
    model = plain(case)
    fit = lambda: pymc_extras.fit(method="dadvi", model=model, **OPTIONS)  # noqa: E731
    result, seconds = nested_peers.twice(fit)
    normals = normals_of(model, np.asarray(result["optimizer_result"]["x"]))
    sites = zip(case.over, ordered(normals, case.over), strict=True)
    yield {
        "total variation": {
            site: apart(normals[value][:, 0], known["hyperparameters"][site])
            for site, value in sites
        },
        "elements": {
            title: apart(normals[site][:, place or 0], known["elements"][title])
            for title, site, place in case.listed()
        },
        "seconds": seconds,
    }


def normals_of(model, found):
    """Means and standard deviations of each value, [2, elements], from all means, then logs."""
    start, normals = 0, {}
    both = np.stack([found[: len(found) // 2], np.exp(found[len(found) // 2 :])])
    for name, value in model.initial_point().items():
        size = np.size(value)
        normals[name] = both[:, start : start + size]
        start += size
    return normals


def apart(normal, part):
    """Total variation between a Normal and a table of the reference."""
    mean, deviation = normal
    return between(ndtr((np.array(part["points"]) - mean) / deviation), part["cdf"])
