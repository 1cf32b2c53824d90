"""The black-box α energy against quadrature, and the evidence."""

import numpy as np
import numpyro.infer.autoguide
import pyro.infer.autoguide
import pytest
import torch
from scipy.stats import norm

from moment_calculus.errors import UnsupportedMoments
from tests.fitting.models import fresh
from tests.propagation.oracle import cavity_by_quadrature, losses, near
from tests.response.models import doubles

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
NOISE, ROWS, EACH = 0.6, 4, 2
rng = np.random.default_rng(0)
X, MASK, SCALES = rng.normal(size=ROWS), np.array([True, False, True, True]), [0.7, 1.8, 0.4, 1.0]
Y, MANY = 0.8 * X + NOISE * rng.normal(size=ROWS), rng.normal(size=(ROWS, EACH))
LOC, SCALE = 0.4, 0.7
ALPHAS = pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])


def regression(host, size=None, **around):
    """One weight, rows in one plate; the host's ``scale`` or ``mask`` around the observations."""

    def model(x, y):
        weight = host.language.sample("weight", host.dist.Normal(0.0, 1.0))
        fn = host.dist.Normal(x * weight, NOISE)
        with plate(host, size or len(y), len(y)):
            observe = lambda: host.language.sample("obs", fn, obs=y)  # noqa: E731
            for kind, value in around.items():
                wrap = getattr(host.handlers, kind)
                observe = wrap(observe, **{kind: value})
            observe()

    return model


def plate(host, size, rows):
    """Of the data, its subsample the first ones: nothing is drawn for it in Pyro."""
    kind = {"numpyro": {"subsample_size": rows}, "pyro": {"subsample": torch.arange(rows)}}
    return host.language.plate("data", size, **kind[host.name])


def normal_guide(host, loc, scale):
    """Of the weight."""

    def guide(*data):
        host.language.sample("weight", host.dist.Normal(loc, scale))

    return guide


def estimates(host, alpha, model, *data, guide=None, particles=4, **options):
    """Energies, the first with the same random numbers for all of them."""
    pyro.set_rng_seed(0)
    cavity = {"energy": "cavity", "propagation": "sampled", "num_particles": particles}
    energy = host.package.BBAlphaELBO(alpha, **cavity)
    guide = guide or normal_guide(host, LOC, SCALE)
    return losses(host, energy, model, {}, *data, guide=guide, **options)


def posterior(x, y):
    """Mean and deviation of the weight, and the log evidence."""
    precision = x @ x / NOISE**2 + 1
    spread = np.outer(x, x) + NOISE**2 * np.eye(len(y))
    quadratic = y @ np.linalg.solve(spread, y) + np.linalg.slogdet(2 * np.pi * spread)[1]
    return x @ y / NOISE**2 / precision, precision**-0.5, -0.5 * quadratic


def by_rows(alpha, weights):
    """Of the regression, by quadrature."""
    rows = zip(X, Y, np.broadcast_to(weights, ROWS), strict=True)
    return sum(cavity_by_quadrature(alpha, ROWS, row, NOISE, LOC, SCALE) for row in rows)


@pytest.mark.parametrize(
    ("alpha", "kind"), [(0.0, ""), (0.5, ""), (1.0, ""), (0.7, "scale"), (0.7, "mask")]
)
def test_draws_converge_to_quadrature(host, alpha, kind):
    """A user's scale is inside the power; masked data count among the N."""
    with doubles(host):
        around = {"": {}, "scale": {"scale": SCALES}, "mask": {"mask": MASK}}[kind]
        arrays = {key: host.array(np.asarray(value)) for key, value in around.items()}
    model = regression(host, **arrays)
    found = estimates(host, alpha, model, X, Y, particles=1000, count=20)
    assert near(found, -by_rows(alpha, next(iter(around.values()), 1.0)))


def test_messengers_make_their_parameters_before_particles_are_vectorised():
    host = fresh("pyro")
    model, automatic = regression(host), pyro.infer.autoguide
    with doubles(host):
        start = automatic.init_to_value(values={"weight": torch.tensor(LOC)})
        guide = automatic.AutoNormalMessenger(model, init_loc_fn=start, init_scale=SCALE)
        cavity = {"energy": "cavity", "propagation": "sampled", "num_particles": 1000}
        energy, data = host.package.BBAlphaELBO(0.5, **cavity), [host.array(X), host.array(Y)]
        found = [energy.loss(model, guide, *data) for _ in range(20)]
    assert near(found, -by_rows(0.5, 1.0))


@ALPHAS
def test_one_datum_under_its_posterior_has_its_evidence(host, alpha):
    """The ratio is p(y), whatever is drawn."""
    x, y = X[:1], Y[:1]
    loc, scale, evidence = posterior(x, y)
    found = estimates(host, alpha, regression(host), x, y, guide=normal_guide(host, loc, scale))
    assert found[0] == pytest.approx(-evidence, rel=1e-10)


def test_no_power_is_the_elbo_of_draws_and_a_small_one_its_limit(host):
    """Under the posterior the ELBO is the log evidence, whatever is drawn."""
    loc, scale, evidence = posterior(X, Y)
    guide = normal_guide(host, loc, scale)
    found = estimates(host, 0.0, regression(host), X, Y, guide=guide)[0]
    assert found == pytest.approx(-evidence, rel=1e-10)
    none, small = (estimates(host, alpha, regression(host), X, Y)[0] for alpha in (0.0, 1e-6))
    assert small == pytest.approx(none, rel=1e-5)
    assert none != pytest.approx(-evidence, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_the_mean_over_all_mini_batches_is_the_energy_of_all_data(host, alpha):
    batches, model = (slice(0, 2), slice(2, 4)), regression(host, size=ROWS)
    found = np.mean([estimates(host, alpha, model, X[rows], Y[rows])[0] for rows in batches])
    assert found == pytest.approx(estimates(host, alpha, model, X, Y)[0], rel=1e-10)


@ALPHAS
def test_sites_in_the_plate_belong_to_their_datum(host, alpha):
    """Under the posterior of each the ratio is its evidence, whatever is drawn."""
    gain = 1 / (1 + NOISE**2)

    def model(y):
        with plate(host, ROWS, len(y)):
            own = host.language.sample("own", host.dist.Normal(0.0, 1.0))
            host.language.sample("obs", host.dist.Normal(own, NOISE), obs=y)

    def guide(y):
        with plate(host, ROWS, len(y)):
            host.language.sample("own", host.dist.Normal(gain * y, gain**0.5 * NOISE))

    evidence = norm.logpdf(Y[:2], 0, (1 + NOISE**2) ** 0.5).sum() * ROWS / 2
    found = estimates(host, alpha, model, Y[:2], guide=guide)
    assert found[0] == pytest.approx(-evidence, rel=1e-10)


def test_a_site_in_some_of_the_plates_is_shared_by_their_data(host):
    """Half of the rows, of which each has a weight of its own for all its elements."""
    alpha = 0.5

    def rows(y):
        return host.language.plate("rows", ROWS, subsample_size=len(y), dim=-2)

    def model(y):
        with rows(y):
            weight = host.language.sample("weight", host.dist.Normal(0.0, 1.0))
            with host.language.plate("each", EACH, dim=-1):
                host.language.sample("obs", host.dist.Normal(weight, NOISE), obs=y)

    def guide(y):
        with rows(y):
            host.language.sample("weight", host.dist.Normal(LOC, SCALE))

    exact = -2 * sum(
        cavity_by_quadrature(alpha, EACH, (1.0, y, 1.0), NOISE, LOC, SCALE)
        for y in MANY[:2].ravel()
    )
    found = estimates(host, alpha, model, MANY[:2], guide=guide, particles=1000, count=20)
    assert near(found, exact)


REFUSED = {
    "energy='hole' is not one of reparameterised, cavity": {"energy": "hole"},
    "propagation='analytic'.*no closed form; pass propagation='sampled'": {"energy": "cavity"},
    "propagation='mean'.*no closed form": {"energy": "cavity", "propagation": "mean"},
    "covariance, categorical would have no effect; leave out": {
        "energy": "cavity",
        "propagation": "sampled",
        "covariance": "diagonal",
        "categorical": "delta",
    },
    "sample_sites": {"energy": "cavity", "propagation": "sampled", "sample_sites": ["weight"]},
}


@pytest.mark.parametrize("cause", REFUSED)
def test_options_without_meaning_are_refused(host, cause):
    with pytest.raises(ValueError, match=cause):
        host.package.BBAlphaELBO(0.5, num_particles=2, **REFUSED[cause])


def test_one_particle_is_variational_inference_with_a_warning(host):
    with pytest.warns(UserWarning, match=r"use num_particles >= 2$") as warned:
        host.package.BBAlphaELBO(0.5, energy="cavity", propagation="sampled")
    assert len(warned) == 1


@pytest.mark.parametrize("kind", ["AutoDelta", "MCDropoutGuide"])
def test_guides_without_density_are_refused(host, kind):
    model = vectors(host)
    guide = (
        host.autoguide.AutoDelta(model) if kind == "AutoDelta" else host.package.MCDropoutGuide()
    )
    cause = {"AutoDelta": "is a point estimate", "MCDropoutGuide": "masked"}[kind]
    with pytest.raises(UnsupportedMoments, match=f"{cause}.*no density") as raised:
        estimates(host, 0.5, model, X, Y, guide=guide)
    assert "BBAlphaELBO() with its default energy" in raised.value.remedy


def test_points_that_are_functions_of_draws_have_their_density(host):
    """As the sites of a packed latent vector: under the posterior the ratio is the evidence."""
    automatic, model = host.autoguide, regression(host)
    loc, scale, evidence = posterior(X, Y)
    with doubles(host):
        start = automatic.init_to_value if host.name == "pyro" else numpyro.infer.init_to_value
        start = start(values={"weight": host.array(np.asarray(loc))})
        guide = automatic.AutoMultivariateNormal(model, init_loc_fn=start, init_scale=scale)
        params = None
        if host.name == "numpyro":
            params = {"auto_loc": host.array([loc]), "auto_scale_tril": host.array([[scale]])}
        found = estimates(host, 0.0, model, X, Y, guide=guide, particles=3, params=params)
    assert found[0] == pytest.approx(-evidence, rel=1e-10)


def vectors(host):
    """A weight that a linear map contracts."""

    def model(x, y):
        prior = host.dist.Normal(0.0, 1.0).expand([1]).to_event(1)
        loc = x[:, None] @ host.language.sample("weight", prior)
        host.observe(y, host.dist.Normal(loc, NOISE), y)

    return model
