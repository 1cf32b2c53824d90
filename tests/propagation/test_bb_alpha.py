"""Black-box α energies against closed forms: limits, mini-batches, what a datum is."""

import itertools
import re
from contextlib import ExitStack

import numpy as np
import pyro
import pytest

from moment_calculus.errors import UnsupportedMoments
from tests.propagation.oracle import bernoulli_energy, divergence, energy, losses, near, of_batches
from tests.response.models import doubles

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
NOISE, ROWS, INPUTS, EACH = 0.6, 6, 3, 2
rng = np.random.default_rng(0)
X, WIDE = rng.normal(size=(ROWS, INPUTS)), rng.normal(size=(ROWS, EACH, INPUTS))
Y, MANY = rng.normal(size=ROWS), rng.normal(size=(ROWS, EACH))
SCALES, MASK = rng.uniform(0.3, 2.0, size=ROWS), np.array([1, 0, 1, 1, 0, 1], dtype=bool)
LOC, SCALE = np.array([0.4, -1.0, 0.7]), np.array([0.5, 0.3, 0.8])
SITES = {"weight": (LOC, SCALE)}
KL = divergence(LOC, SCALE)
ALPHAS = pytest.mark.parametrize("alpha", [0.3, 1.0])
FLOWS = pytest.mark.parametrize(
    "flow", [{}, {"propagation": "sampled", "num_particles": 4}], ids=["analytic", "sampled"]
)


def normal(host, loc):
    return host.dist.Normal(loc, NOISE)


def bernoulli(host, loc):
    return host.dist.Bernoulli(logits=loc)


def regression(host, likelihood=normal, size=None, **around):
    """Rows in one plate; what is around the observations: the host's ``scale`` and ``mask``."""

    def model(x, y):
        fn = likelihood(host, x @ host.weight())
        with ExitStack() as stack:
            plate = host.language.plate("data", size or len(y), subsample_size=len(y))
            stack.enter_context(plate)
            for kind, value in around.items():
                wrap = getattr(host.handlers, kind)
                stack.enter_context(wrap(**{kind: value}))
            host.language.sample("obs", fn, obs=y)

    return model


def vectors(host, x):
    """x @ weight, the elements of a datum as one vector: their covariances are propagated."""
    return (host.weight()[None, None] @ x.swapaxes(-1, -2))[:, 0]


def nested(host, likelihood=normal, loc=vectors):
    """Rows in a plate, several observations of each in an inner one."""

    def model(x, y):
        fn, plate = likelihood(host, loc(host, x)), host.language.plate
        with plate("rows", len(y), dim=-2), plate("each", EACH, dim=-1):
            host.language.sample("obs", fn, obs=y)

    return model


def value_of(host, model, *data, sites=SITES, **options):
    """The energy, with the same random numbers for all options."""
    pyro.set_rng_seed(0)
    return losses(host, host.package.BBAlphaELBO(**options), model, sites, *data)[0]


def elbo(host, model, *data, **options):
    """The ELBO, with the same random numbers."""
    pyro.set_rng_seed(0)
    return losses(host, host.package.DeterministicELBO(**options), model, SITES, *data)[0]


def moments(x):
    """Of x @ weight, of elements of one datum."""
    return x @ LOC, (x * SCALE**2) @ np.swapaxes(x, -1, -2)


def by_rows(alpha, x, y, weights=1.0):
    """The energies of rows, each a datum."""
    mean, covariance = moments(x)
    rows = zip(y, mean, np.diagonal(covariance), np.broadcast_to(weights, y.shape), strict=True)
    return np.array([energy(alpha, *row[:3], NOISE, weights=row[3]) for row in rows])


@FLOWS
@pytest.mark.parametrize("likelihood", [normal, bernoulli])
def test_a_small_power_is_the_elbo_and_none_is_exactly(host, flow, likelihood):
    model, y = regression(host, likelihood), (Y > 0) * 1.0
    plain = elbo(host, model, X, y, **flow)
    assert value_of(host, model, X, y, alpha=1e-6, **flow) == pytest.approx(plain, rel=1e-4)
    assert value_of(host, model, X, y, alpha=0, **flow) == pytest.approx(plain, rel=1e-14)


@ALPHAS
def test_bernoulli_observations(host, alpha):
    mean, covariance = moments(X)
    rows = list(zip((Y > 0) * 1.0, mean, np.diagonal(covariance), strict=True))
    found = value_of(host, regression(host, bernoulli), X, (Y > 0) * 1.0, alpha=alpha)
    exact = KL - sum(bernoulli_energy(alpha, *row) for row in rows)
    assert found == pytest.approx(exact, rel=1e-8)


@ALPHAS
def test_the_mean_over_all_mini_batches_is_the_energy_of_all_data(host, alpha):
    """A user's scale is inside the power of each, that of the subsample outside."""
    batches, bb_alpha = [*itertools.combinations(range(ROWS), 2)], host.package.BBAlphaELBO(alpha)
    for around in ({}, {"scale": 0.7}):
        model = regression(host, size=ROWS, **around)
        found = of_batches(host, bb_alpha, model, SITES, X, Y, batches=batches).mean()
        assert found == pytest.approx(value_of(host, model, X, Y, alpha=alpha), rel=1e-10)
        rows = by_rows(alpha, X, Y, weights=around.get("scale", 1.0))
        assert found == pytest.approx(KL - rows.sum(), rel=1e-10)


@FLOWS
def test_the_subsample_of_the_host_is_one_for_all_particles(host, flow):
    """Each batch of one row gives one of so many energies of the others."""

    def model(x, y):
        weight = host.weight()
        with host.language.plate("data", ROWS, subsample_size=1) as index:
            host.language.sample("obs", normal(host, x[index] @ weight), obs=y[index])

    sites = {"weight": (LOC, 1e-9 * SCALE)}  # so that draws are the mean
    found = value_of(host, model, X, Y, sites=sites, alpha=0.5, **flow)
    densities = -0.5 * np.log(2 * np.pi * NOISE**2) - (Y - X @ LOC) ** 2 / NOISE**2 / 2
    possible = divergence(*sites["weight"]) - ROWS * densities
    assert np.isclose(found, possible, rtol=1e-6).sum() == 1


@ALPHAS
@pytest.mark.parametrize("kind", ["scale", "scales", "mask", "both"])
def test_a_users_scale_and_mask_are_inside_the_power(host, alpha, kind):
    kinds = {"scale": {"scale": 0.7}, "scales": {"scale": SCALES}, "mask": {"mask": MASK}}
    around = kinds.get(kind, {"scale": 1.6, "mask": MASK})
    weights = around.get("scale", 1.0) * around.get("mask", 1.0)
    with doubles(host):
        arrays = {k: host.array(v) if np.ndim(v) else v for k, v in around.items()}
    found = value_of(host, regression(host, **arrays), X, Y, alpha=alpha)
    exact = KL - by_rows(alpha, X, Y, weights=weights).sum()
    assert found == pytest.approx(exact, rel=1e-12)


def test_a_scale_is_inside_the_power_of_draws(host):
    """(s/a) log of the mean of p^a, a = α s, is not s (1/α) log of the mean of p^α."""
    options = {"propagation": "sampled", "num_particles": 3}
    scaled = value_of(host, regression(host, scale=0.4), X, Y, alpha=1.0, **options)
    inside = value_of(host, regression(host), X, Y, alpha=0.4, **options)
    assert scaled - KL == pytest.approx(0.4 * (inside - KL), rel=1e-12)


@ALPHAS
def test_elements_of_a_plate_are_data_or_what_is_inside_it_is_one_datum(host, alpha):
    model = nested(host)
    mean, covariance = moments(WIDE)
    data = list(zip(MANY, mean, covariance, strict=True))
    jointly = sum(energy(alpha, *datum, NOISE) for datum in data)
    apart = sum(energy(alpha, y[j], m[j], c[j, j], NOISE) for y, m, c in data for j in range(EACH))
    found = value_of(host, model, WIDE, MANY, alpha=alpha, datum="rows")
    assert found == pytest.approx(KL - jointly, rel=1e-10)
    assert value_of(host, model, WIDE, MANY, alpha=alpha) == pytest.approx(KL - apart, rel=1e-10)
    assert abs(jointly - apart) > 0.1


def test_draws_sum_what_is_inside_the_plate_of_the_data(host):
    data = zip(MANY, *moments(WIDE), strict=True)
    exact = KL - sum(energy(0.5, *datum, NOISE) for datum in data)
    bb_alpha = host.package.BBAlphaELBO(
        0.5, datum="rows", propagation="sampled", num_particles=1000
    )
    assert near(losses(host, bb_alpha, nested(host), SITES, WIDE, MANY, count=20), exact)


@ALPHAS
def test_several_sites_of_a_datum_are_one_joint_density(host, alpha):
    def model(x, y):
        weight = host.weight()
        with host.language.plate("data", len(y)):
            for j in range(EACH):
                fn = host.dist.Normal(x[:, j] @ weight, NOISE)
                host.language.sample(f"obs_{j}", fn, obs=y[:, j])

    data = zip(MANY, *moments(WIDE), strict=True)
    exact = KL - sum(energy(alpha, *datum, NOISE) for datum in data)
    assert value_of(host, model, WIDE, MANY, alpha=alpha) == pytest.approx(exact, rel=1e-10)


@ALPHAS
def test_local_latents_in_the_plate_of_the_data(host, alpha):
    local = np.linspace(-1, 1, ROWS), np.linspace(0.2, 0.9, ROWS)

    def model(x, y):
        weight = host.weight()
        with host.language.plate("data", len(y)):
            own = host.language.sample("own", host.dist.Normal(0.0, 1.0))
            host.language.sample("obs", normal(host, x @ weight + own), obs=y)

    mean, covariance = moments(X)
    variance = np.diagonal(covariance) + local[1] ** 2
    rows = zip(Y, mean + local[0], variance, strict=True)
    exact = KL + divergence(*local) - sum(energy(alpha, *row, NOISE) for row in rows)
    found = value_of(host, model, X, Y, sites=SITES | {"own": local}, alpha=alpha)
    assert found == pytest.approx(exact, rel=1e-12)


def test_observations_without_a_plate_are_one_datum(host):
    def model(x, y):
        fn = normal(host, vectors(host, x)[0]).to_event(1)
        host.language.sample("obs", fn, obs=y)

    with pytest.warns(UserWarning, match="are one datum.*obs in no plate"):
        found = value_of(host, model, X[None], Y, alpha=0.5)
    assert found == pytest.approx(KL - energy(0.5, Y, *moments(X), NOISE), rel=1e-10)


def test_one_particle_is_the_elbo_with_a_warning(host):
    with pytest.warns(UserWarning, match="num_particles >= 2"):
        bb_alpha = host.package.BBAlphaELBO(0.5, propagation="sampled")
    pyro.set_rng_seed(0)
    found = losses(host, bb_alpha, regression(host), SITES, X, Y)[0]
    plain = elbo(host, regression(host), X, Y, propagation="sampled")
    assert found == pytest.approx(plain, rel=1e-14)


@pytest.mark.parametrize("alpha", [-0.1, 1.5, np.nan])
def test_the_power_is_between_nought_and_one(host, alpha):
    with pytest.raises(ValueError, match="0 <= alpha <= 1"):
        host.package.BBAlphaELBO(alpha)


def test_an_unknown_datum_names_the_candidates(host):
    with pytest.raises(ValueError, match=r"datum='row' .*\(obs\): each, rows"):
        value_of(host, nested(host), WIDE, MANY, datum="row")
    with pytest.raises(ValueError, match="observes nothing"):
        value_of(host, lambda x: host.weight(), X)


def test_dependent_elements_of_unknown_joint_density_are_refused(host):
    def rows(host, x):
        return (x * host.weight()).sum(-1)

    axes = r"elements \(6, 2\) of 'obs' along the axes \(-1,\) is not"
    refused = {"is a Bernoulli": nested(host, bernoulli), axes: nested(host, loc=rows)}
    for cause, model in refused.items():
        with pytest.raises(UnsupportedMoments, match=f"may depend on .*{cause}") as raised:
            value_of(host, model, WIDE, (MANY > 0) * 1.0, datum="rows")
        assert re.search("propagation='sampled'.* plate 'each' data", raised.value.remedy)
