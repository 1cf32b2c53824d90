"""Sites on simplexes and with LKJ priors, beside tensor grids over their coordinates."""

import itertools

import jax
import numpy as np
import numpyro.distributions
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.operations.linear.factorisation import CORRELATION
from moment_calculus.operations.shapes.coordinates import on_support
from moment_calculus.rulebooks import propagation_of
from tests.checks.jaxprs import by_numpy
from tests.propagation.oracle import divergence, losses

dist = numpyro.distributions
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(18)
GROUP = np.array([0, 0, 2, 1, 2])
X = np.array([-1.0, 0.5, 2.0, 1.0, 0.3])
Y = np.array([0.3, -0.2, 1.5, 0.1, 0.7])
NOISE = 0.7


def grid(loc, scale):
    """Points [n, k] of independent normal coordinates, and their weights [n]."""
    loc, scale = np.ravel(loc), np.ravel(scale)
    z = np.array(list(itertools.product(NODES, repeat=len(loc))))
    weights = np.prod(list(itertools.product(WEIGHTS, repeat=len(loc))), axis=-1)
    return loc + scale * z, weights / weights.sum()


def supported(support, points):
    """Points of the coordinates, on the support."""
    return by_numpy(lambda x: dist.biject_to(support)(x))(points)


def divergence_on_support(make, loc, scale):
    """KL of the image of N(loc, scale²) on the support of a prior, by its own densities."""

    @by_numpy
    def densities(points):
        prior = make(dist)
        transform = dist.biject_to(prior.support)
        base = dist.Normal(np.asarray(loc), np.asarray(scale)).to_event(1)
        values = transform(points)
        posterior = base.log_prob(points) - transform.log_abs_det_jacobian(points, values)
        return posterior - prior.log_prob(values)

    points, weights = grid(loc, scale)
    with jax.enable_x64(True):
        return float(weights @ densities(points))


COORDINATES = {1: ([0.4], [0.3]), 2: ([0.4, -0.2], [0.3, 0.5])}
COORDINATES[3] = [0.4, -0.2, 0.6], [0.3, 0.5, 0.2]
PRIORS = {
    "LKJ factor 2": (lambda d: d.LKJCholesky(2, 1.5), 1),
    "LKJ factor 3": (lambda d: d.LKJCholesky(3, 0.7), 3),
    "LKJ matrix 3": (lambda d: d.LKJ(3, 1.5), 3),
    "Dirichlet 2": (lambda d: d.Dirichlet(np.array([2.0, 0.5])), 1),
    "Dirichlet 4": (lambda d: d.Dirichlet(np.array([2.0, 0.5, 1.0, 3.0])), 3),
}


def of_host(host):
    """The host's distributions, which take arrays of NumPy."""

    class Distributions:
        def __getattr__(self, name):
            kind = getattr(host.dist, name)
            return lambda *parts: kind(
                *(host.array(part) if isinstance(part, np.ndarray) else part for part in parts)
            )

    return Distributions()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PRIORS)
def test_divergences(host, name):
    make, count = PRIORS[name]

    def model():
        host.language.sample("site", make(of_host(host)))

    sites = {"site": COORDINATES[count]}
    loss = losses(host, host.package.DeterministicELBO(), model, sites)[0]
    with jax.enable_x64(True):
        exact = divergence_on_support(make, *COORDINATES[count])
    np.testing.assert_allclose(loss, exact, rtol=1e-7)


def scales(loc, scale):
    """Points of exponentials of independent Gaussians, and weights."""
    points, weights = grid(loc, scale)
    return np.exp(points), weights


def factors(size):
    """Points [n, d, d] of scaled Cholesky factors, and weights."""
    count = size * (size - 1) // 2
    x, of_x = grid(*COORDINATES[count])
    s, of_s = scales(*DEVIATIONS[size])
    with jax.enable_x64(True):
        roots = supported(dist.constraints.corr_cholesky, x)
    weights = (of_x[:, None] * of_s).ravel()
    return (s[:, :, None] * roots[:, None]).reshape(-1, size, size), weights


DEVIATIONS = {2: ([0.1, -0.3], [0.2, 0.3])}
EFFECTS = (
    np.array([[0.2, -0.5], [1.0, 0.4], [0.1, -0.3]]),
    np.array([[0.3, 0.5], [0.2, 0.6], [0.1, 0.4]]),
)
SITES = {
    "deviations": DEVIATIONS[2],
    "factor": COORDINATES[1],
    "effects": EFFECTS,
    "centre": ([0.3, -0.2], [0.4, 0.1]),
}


def deviations(host):
    prior = host.dist.LogNormal(host.array(np.zeros(2)), 1.0).to_event(1)
    return host.language.sample("deviations", prior)


def factor(host):
    return host.language.sample("factor", host.dist.LKJCholesky(2, 1.5))


def diagonal(host, vector):
    return host.np.diag(vector)


def by_covariance(host):
    s, matrix = deviations(host), host.language.sample("factor", host.dist.LKJ(2, 1.5))
    return {"covariance_matrix": host.np.outer(s, s) * matrix}


CENTRED = {
    "rows": lambda host: {"scale_tril": deviations(host)[..., None] * factor(host)},
    "diagonal": lambda host: {"scale_tril": diagonal(host, deviations(host)) @ factor(host)},
    "covariance": by_covariance,
}


def prior_of_scales():
    """KL of the deviations, of the factor, and of the centre."""
    normal = divergence(*SITES["deviations"]) + divergence(*SITES["centre"])
    with jax.enable_x64(True):
        return normal + divergence_on_support(PRIORS["LKJ factor 2"][0], *COORDINATES[1])


def log_densities(centre, covariances, roots):
    """E log N(e; m, S Sᵀ) of independent e and m at points of S, [n]: means and variances."""
    inverse = np.linalg.inv(roots)
    quadratic = np.einsum("nij,kj->nki", inverse, centre)
    distance = (quadratic**2).sum(-1) + np.einsum("nij,kj->nk", inverse**2, covariances)
    log_scale = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(-1)
    terms = -0.5 * (distance + 2 * np.log(2 * np.pi)) - log_scale[:, None]
    return terms.sum(-1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CENTRED)
def test_vectors_with_random_correlations(host, name):
    def model():
        matrix = CENTRED[name](host)
        centre = host.language.sample(
            "centre", host.dist.Normal(host.array(np.zeros(2)), 1.0).to_event(1)
        )
        with host.language.plate("groups", 3):
            host.language.sample("effects", host.dist.MultivariateNormal(centre, **matrix))

    loss = losses(host, host.package.DeterministicELBO(), model, SITES)[0]
    (loc, scale), (centre, spread) = SITES["effects"], map(np.array, SITES["centre"])
    roots, weights = factors(2)
    log_prior = weights @ log_densities(loc - centre, scale**2 + spread**2, roots)
    entropy = (0.5 + 0.5 * np.log(2 * np.pi) + np.log(scale)).sum()
    np.testing.assert_allclose(loss, prior_of_scales() - log_prior - entropy, rtol=1e-7)


PRODUCTS = {
    "columns": lambda host, z: ((deviations(host)[:, None] * factor(host)) @ z.T).T,
    "rows": lambda host, z: z @ (diagonal(host, deviations(host)) @ factor(host)).T,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PRODUCTS)
def test_effects_under_a_random_factor(host, name):
    def model(groups, x, y):
        prior = host.dist.Normal(host.array(np.zeros((3, 2))), 1.0).to_event(2)
        effects = PRODUCTS[name](host, host.language.sample("effects", prior))
        with host.language.plate("data", len(Y)):
            mean = effects[groups, 0] + effects[groups, 1] * x
            host.language.sample("y", host.dist.Normal(mean, NOISE), obs=y)

    sites = {key: pair for key, pair in SITES.items() if key != "centre"}
    loss = losses(host, host.package.DeterministicELBO(), model, sites, GROUP, X, Y)[0]
    (loc, scale), (roots, weights) = SITES["effects"], factors(2)
    design = np.stack([np.ones(len(X)), X], -1)
    rows = np.einsum("nk,pkj->pnj", design, roots)  # of the linear predictor, by standard effects
    residual = Y - np.einsum("pnj,nj->pn", rows, loc[GROUP])
    square = residual**2 + np.einsum("pnj,nj->pn", rows**2, scale[GROUP] ** 2)
    log_prob = -0.5 * np.log(2 * np.pi * NOISE**2) - square / NOISE**2 / 2
    prior = prior_of_scales() - divergence(*SITES["centre"]) + divergence(loc, scale)
    np.testing.assert_allclose(loss, prior - weights @ log_prob.sum(-1), rtol=1e-7)


def test_moments_of_a_correlation_matrix():
    loc, scale = map(np.array, COORDINATES[3])
    flow = propagation_of("full", "exact")
    found = on_support(CORRELATION, site_value("factor", loc, scale**2, flow))
    points, weights = grid(loc, scale)
    with jax.enable_x64(True):
        values = supported(dist.constraints.corr_matrix, points)
    mean = np.tensordot(weights, values, 1)
    deviations = values - mean
    covariance = np.einsum("n,nij,nik->ijk", weights, deviations, deviations)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(found.variance, np.diagonal(covariance, 0, 1, 2), atol=1e-8)


CLASSES = np.array([0, 2, 2, 1])
COUNTS = np.array([3.0, 1.0, 4.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["classes", "counts", "rows", "repeated"])
def test_classes_with_a_dirichlet_prior(host, name):
    keyword = {"probs": None}

    def observe(p):
        if name == "counts":
            fn = host.dist.Multinomial(total_count=8, probs=p)
            return host.language.sample("y", fn, obs=host.array(COUNTS))
        wide = host.np.broadcast_to(p, (9, 3)) if name == "repeated" else p
        places = {"rows": [0, 0, 0, 0], "repeated": [8, 0, 5, 2]}.get(name)
        keyword["probs"] = p if places is None else wide[host.array(np.array(places))]
        with host.language.plate("data", 4):
            fn = host.dist.Categorical(**keyword)
            return host.language.sample("y", fn, obs=host.array(CLASSES))

    def model():
        shape = (1, 3) if name == "rows" else (3,)
        prior = host.dist.Dirichlet(host.array(np.ones(shape)))
        observe(host.language.sample("p", prior.to_event(len(shape) - 1)))

    loc, scale = (np.reshape(part, (-1, 2)) for part in COORDINATES[2])
    pair = (loc, scale) if name == "rows" else COORDINATES[2]
    loss = losses(host, host.package.DeterministicELBO(), model, {"p": pair})[0]
    with jax.enable_x64(True):
        points, weights = grid(*COORDINATES[2])
        logs = np.log(supported(dist.constraints.simplex, points))
        exact = divergence_on_support(lambda d: d.Dirichlet(np.ones(3)), *COORDINATES[2])
    counts = COUNTS if name == "counts" else np.bincount(CLASSES)
    constant = np.log(280.0) if name == "counts" else 0.0  # 8! / (3! 1! 4!)
    np.testing.assert_allclose(loss, exact - weights @ logs @ counts - constant, rtol=1e-7)


def test_other_random_factors_are_refused(host):
    def model():
        root = factor(host)
        zeros = host.array(np.zeros(2))
        host.language.sample("y", host.dist.MultivariateNormal(zeros, scale_tril=root * root))

    with pytest.raises(UnsupportedMoments, match=r"(?s)LKJCholesky.*factor"):
        losses(host, host.package.DeterministicELBO(), model, {"factor": COORDINATES[1]})
