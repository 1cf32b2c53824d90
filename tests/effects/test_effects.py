"""Effects in both hosts: their prior covariances, nested inference, and fits without draws."""

import warnings

import jax
import numpy as np
import pytest

from moment_inference import structures
from tests.effects.models import EDGES, MODELS, SIDE, TIMES, X
from tests.effects.test_structures import COVARIANCES, laplacian, scaled
from tests.fitting.models import HOSTS, fresh

GIVEN = {"scale": 0.7, "share": 0.4, "height": 0.7, "length": 2.0, "of outer": 0.7, "of inner": 0.5}


@pytest.fixture(params=["numpyro", "pyro"])
def host(request):
    """A host without parameters of an earlier test."""
    return fresh(request.param)


def trace_of(host, name, given):
    """The sites of a model of a host, some of whose values are given."""
    model, y = MODELS[name].of(host)
    values = {site: host.array(value) for site, value in given.items()}
    if host.name == "pyro":
        return host.handlers.trace(host.handlers.condition(model, values)).get_trace(y).nodes
    seeded = host.handlers.seed(host.handlers.condition(model, values), 0)
    return host.handlers.trace(seeded).get_trace(y)


def covariance(host, name, effect):
    """Of an effect given the hyperparameters: it is linear in its standard Normals."""
    site = f"{effect}_standardised"
    value = lambda shown, **known: trace_of(host, name, GIVEN | known)[shown]["value"]  # noqa: E731
    if host.name == "numpyro":
        size = jax.eval_shape(lambda: value(site)).shape[0]
        rows = np.asarray(jax.jit(jax.vmap(lambda z: value(effect, **{site: z})))(np.eye(size)))
    else:
        units = np.eye(len(value(site)), dtype=np.float32)
        rows = np.stack([value(effect, **{site: unit}) for unit in units])
    return rows.T @ rows


def walk_covariance(order):
    steps = np.diff(np.eye(TIMES), order, axis=0)
    return scaled(np.linalg.pinv(steps.T @ steps, hermitian=True))


LAGS = np.abs(np.subtract.outer(np.arange(TIMES), np.arange(TIMES)))
ON_MAP = scaled(np.linalg.pinv(laplacian(EDGES, SIDE**2), hermitian=True))
DISTANCES = np.abs(np.subtract.outer(X, X))
EXPECTED = {  # with scale 1; how far the basis may be off
    ("random walk", "walk"): (walk_covariance(1), 1e-5),
    ("random walk of order 2", "walk"): (walk_covariance(2), 1e-5),
    ("autoregression", "series"): (0.4**LAGS, 1e-5),
    ("neighbours", "places"): (ON_MAP, 1e-5),
    ("BYM2", "places"): (0.6 * np.eye(SIDE**2) + 0.4 * ON_MAP, 1e-5),
    ("squared exponential", "curve"): (COVARIANCES["squared exponential"](DISTANCES / 2), 0.06),
    ("matern 3/2", "curve"): (COVARIANCES["matern 3/2"](DISTANCES / 2), 0.1),
    ("crossed groups", "outer"): (np.eye(6), 1e-5),
}


@pytest.mark.parametrize("row", EXPECTED, ids=" ".join)
def test_effects_have_the_covariance_of_their_model(host, row):
    expected, tolerance = EXPECTED[row]
    found = covariance(host, *row) / 0.49
    assert np.abs(found - expected).max() < tolerance


def test_a_spline_is_that_of_its_coefficients(host):
    """Splines of 12 coefficients, which are a walk of order 2."""
    basis = structures.spline_functions(X, structures.Interval.of(X, None), 12, 3)
    walk = structures.walk(12, 2).basis
    found = covariance(host, "spline", "curve") / 0.49
    assert np.abs(found - basis @ walk @ walk.T @ basis.T).max() < 1e-4


def inferred(host, name):
    """Evidence and moments of all sites by nested inference."""
    model, y = MODELS[name].of(host)
    posterior = host.package.nested(model, y)
    sites = (*posterior.hyperparameters, *posterior.field)
    marginals = {site: posterior.marginal(site) for site in sites}
    moments = {n: (each.mean, each.standard_deviation) for n, each in marginals.items()}
    return posterior.log_evidence, moments


@pytest.mark.parametrize("name", MODELS)
def test_hosts_agree_by_nested_inference(name):
    (evidence, ours), (other, theirs) = (inferred(fresh(host), name) for host in HOSTS)
    assert evidence == pytest.approx(other, abs=1e-6)
    for site, moments in ours.items():
        for mine, its in zip(moments, theirs[site], strict=True):
            assert np.allclose(mine, its, atol=1e-6)


@pytest.mark.parametrize("guide", ["DVIGuide", "GaussianGuide"])
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"autoregression", "crossed groups"}))
def test_fits_have_a_closed_form(host, name, guide):
    """Not of a random correlation, nor of exp(scale · z) of standardised groups."""
    model, y = MODELS[name].of(host)
    options = {"by_draws": False, "progress_bar": False, "float64": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit = host.package.fit(model, getattr(host.package, guide)(), y, method="newton", **options)
    assert fit.converged
    assert not fit.held


def test_prior_predictions_have_the_effect(host):
    """Also at other inputs than those of the data."""
    model, y = MODELS["random walk"].of(host)
    predictive = host.language.infer.Predictive(model, num_samples=50)
    key = () if host.name == "pyro" else (jax.random.key(0),)
    draws = predictive(*key, y)["walk"]
    assert draws.shape[0] == 50
    assert draws.shape[-1] == TIMES
    assert np.allclose(np.asarray(draws).sum(-1), 0, atol=1e-4)
