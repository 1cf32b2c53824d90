"""Effects of crossed plates in one full-rank posterior: every pair of them is dependent.

The oracle integrates each observation over the few latent elements that it depends on.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from tests.cases.hosts.full_rank import HOSTS, KINDS, posterior

pytestmark = pytest.mark.usefixtures("double_precision", "double_precision_in_jax")

ROWS, COLUMNS = 3, 4
COUNTS = np.random.default_rng(0).poisson(1.5, size=(ROWS, COLUMNS)) * 1.0
SITES = {"a_scale": 1, "b_rows": ROWS, "c_columns": COLUMNS, "d_cells": ROWS * COLUMNS}
FAMILIES = {
    "Normal": (lambda d, f: d.Normal(f, 0.7), lambda y, f: stats.norm(f, 0.7).logpdf(y)),
    "Poisson": (lambda d, f: d.Poisson(f), lambda y, f: stats.poisson(f).logpmf(y)),
}
# Site names, the predictor, the likelihood. A log-normal scale counts as Gaussian beside a third
# dependent effect, as it does where the effects are chosen by index arrays.
PREDICTORS = {
    "sum": ("abc", lambda xp, a, b, c, d: xp.log(a) + b + c, "Normal"),
    "scaled": ("abc", lambda xp, a, b, c, d: a * b + c, "Normal"),
    "product": ("bc", lambda xp, a, b, c, d: b * c + b + c, "Normal"),
    "cells first": ("abd", lambda xp, a, b, c, d: d + a * b, "Normal"),
    "rates": ("bc", lambda xp, a, b, c, d: xp.exp(b + c), "Poisson"),
}


def model(host, names, predictor, family):
    """Sites in plates of the rows, of the columns and of both."""
    rows, columns = host.plate("rows", ROWS, dim=-2), host.plate("columns", COLUMNS, dim=-1)
    normal, values = host.dist.Normal(0.0, 1.0), dict.fromkeys("abcd")
    if "a" in names:
        values["a"] = host.sample("a_scale", host.dist.LogNormal(0.0, 1.0))
    if "b" in names:
        with rows:
            values["b"] = host.sample("b_rows", normal)
    if "c" in names:
        with columns:
            values["c"] = host.sample("c_columns", normal)
    with rows, columns:
        if "d" in names:
            values["d"] = host.sample("d_cells", normal)
        place = predictor(host.np, *values.values())
        counts = host.np.asarray(COUNTS)
        host.sample("y", FAMILIES[family][0](host.dist, place), obs=counts)


def expected(names, predictor, family, parts):
    """The negative ELBO by quadrature over what each cell depends on."""
    loc, covariance = parts["loc"], parts["covariance"]
    sizes = [SITES[site] for site in SITES if site[0] in names]
    starts = dict(zip(names, np.cumsum([0, *sizes]), strict=False))
    total = 0.0
    for row, column in itertools.product(range(ROWS), range(COLUMNS)):
        inside = {"a": 0, "b": row, "c": column, "d": row * COLUMNS + column}
        chosen = [starts[name] + inside[name] for name in names]
        points, weights = nodes(loc[chosen], covariance[np.ix_(chosen, chosen)])
        values = {**dict.fromkeys("abcd"), **dict(zip(names, points, strict=True))}
        if "a" in names:
            values["a"] = np.exp(values["a"])
        place = predictor(np, *values.values())
        total += weights @ FAMILIES[family][1](COUNTS[row, column], place)
    prior = -0.5 * (np.log(2 * np.pi) + loc**2 + np.diag(covariance)).sum()
    return -(total + prior + stats.multivariate_normal(loc, covariance).entropy())


def nodes(loc, covariance):
    """Points [d, n] and weights of Gauss and Hermite for a Gaussian of d dimensions."""
    line, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack(np.meshgrid(*[line] * len(loc), indexing="ij")).reshape(len(loc), -1)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * len(loc), indexing="ij")), axis=0).ravel()
    return loc[:, None] + np.linalg.cholesky(covariance) @ grid, mass / mass.sum()


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("host_name", HOSTS)
def test_the_loss_of_dependent_effects_is_exact(host_name, name):
    names, predictor, family = PREDICTORS[name]
    parts = posterior(sum(SITES[site] for site in SITES if site[0] in names), spread=0.25)
    effects = lambda host: model(host, names, predictor, family)  # noqa: E731
    ours = HOSTS[host_name](effects, KINDS[0], parts).item()
    close = 5e-4 if name in ("scaled", "cells first") else 1e-9
    assert ours == pytest.approx(expected(names, predictor, family, parts), rel=close)
