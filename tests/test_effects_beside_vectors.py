"""Effects of a plate beside a vector site: nothing is dropped of what each datum needs alone."""

import warnings

import numpy as np
import pytest

from moment_calculus.errors import CovarianceDroppedWarning
from tests.propagation.oracle import divergence, losses

POINTS, GROUPS, COLUMNS, KINDS = 60, 7, 3, 4
random = np.random.default_rng(0)
GROUP, COLUMN, KIND = (random.integers(0, n, POINTS) for n in (GROUPS, COLUMNS, KINDS))
Y = random.integers(0, 2, POINTS) * 1.0
POSTERIOR = {
    name: (random.normal(size=shape), random.uniform(0.2, 0.6, size=shape))
    for name, shape in {"m": (), "a": GROUPS, "c": (GROUPS, COLUMNS), "b": KINDS}.items()
}


def sites(host, posterior=None):
    """Those of the model, or of its guide: scalars of a plate, of two plates, and a vector."""
    sample, plate = host.language.sample, host.language.plate

    def draw(name):
        loc, scale = posterior[name] if posterior else np.arange(2.0)
        return host.dist.Normal(host.array(loc), host.array(scale))

    m = sample("m", draw("m"))
    b = sample("b", draw("b").expand([KINDS]).to_event(1))
    with plate("columns", COLUMNS), plate("groups of columns", GROUPS):
        c = sample("c", draw("c"))
    with plate("groups", GROUPS):
        a = sample("a", draw("a"))
    return m, a, c, b


def loss_of(host, logits, y):
    """At the posterior."""

    def model():
        place = logits(*sites(host))
        with host.language.plate("data", len(y)):
            host.language.sample("y", host.dist.Bernoulli(logits=place), obs=host.array(y))

    objective, guide = host.package.DeterministicELBO(), lambda: sites(host, POSTERIOR) and None
    return losses(host, objective, model, {}, guide=guide).item()


PREDICTORS = {
    "a plate": (lambda m, a, c, b: a[GROUP] + b[KIND], "a b"),
    "the vector first": (lambda m, a, c, b: b[KIND] + a[GROUP], "a b"),
    "two plates": (lambda m, a, c, b: c[GROUP, COLUMN] + b[KIND], "c b"),
    "around a mean": (lambda m, a, c, b: (m + a)[GROUP] + b[KIND], "m a b"),
    "two plates around a mean": (lambda m, a, c, b: (m + c)[GROUP, COLUMN] + b[KIND], "m c b"),
}


@pytest.mark.parametrize("name", PREDICTORS)
def test_the_elbo_is_exact_without_a_warning(host, name):
    predictor, terms = PREDICTORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CovarianceDroppedWarning)
        loss = loss_of(host, predictor, Y)
    assert loss == pytest.approx(by_quadrature(terms.split()), rel=1e-9)


def by_quadrature(terms):
    """The logit of each datum is a sum of independent Gaussians."""
    keys = {"m": (), "a": GROUP, "c": (GROUP, COLUMN), "b": KIND}
    mean = sum(POSTERIOR[term][0][keys[term]] for term in terms)
    variance = sum(POSTERIOR[term][1][keys[term]] ** 2 for term in terms)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    logits = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    energy = (Y[:, None] * logits - np.logaddexp(0, logits)) @ weights / weights.sum()
    return sum(divergence(*moments) for moments in POSTERIOR.values()) - energy.sum()


def test_a_covariance_that_a_reshape_drops_is_warned_of(host):
    """Units of one layer are dependent, and so is a sum of them that a later layer would take."""
    units = lambda m, a, c, b: host.np.tanh(c * a[:, None]).reshape(-1)  # noqa: E731
    with pytest.warns(CovarianceDroppedWarning):
        loss_of(host, lambda *all: units(*all) + all[3][KIND[: GROUPS * COLUMNS]], np.zeros(21))
