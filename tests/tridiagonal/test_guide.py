"""TridiagonalGuide in both hosts: its evidence, options, summary, files and refusals."""

import copy
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pyro
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from moment_inference.errors import NarrowerVarianceWarning
from moment_inference.optimisation.storage.files import StoredFileError
from tests.checks.jaxprs import by_numpy
from tests.checks.marks import IN_PYRO
from tests.fitting.models import fresh, started
from tests.propagation.oracle import losses
from tests.response.models import doubles
from tests.tridiagonal.dense import correlations, covariance

NOISE, TAU, RHO = 0.5, 0.3, 0.45
MEAN = np.array([0.8, -0.5, 0.9, 0.4, -0.7])


def name_of(host, site, role):
    """Of a parameter."""
    if host.name == "numpyro":
        return f"{site}_auto_{role}"
    return f"TridiagonalGuide.{role}s.{site}"


def regression(host, size=5):
    """Coefficients with standard normal priors."""

    def model(x, y=None):
        prior = host.dist.Normal(0.0, 1.0).expand([size]).to_event(1)
        weight = host.language.sample("weight", prior)
        host.observe(x, host.dist.Normal(x @ weight, NOISE), y)

    return model


def network(host):
    """3-4-1 with weights as of torch's layers."""

    def model(x, y=None):
        def draw(name, *shape):
            prior = host.dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
            return host.language.sample(name, prior)

        hidden = host.np.tanh(x @ draw("first", 4, 3).T + draw("shift", 4))
        scale = host.language.sample("scale", host.dist.LogNormal(-1.0, 0.1))
        loc = (hidden @ draw("last", 4, 1))[:, 0] + draw("level")
        host.observe(x, host.dist.Normal(loc, scale), y)

    return model


def variances(host, model, guide, params, x, **options):
    """Of the sites that are predicted; in NumPyro by one compiled program."""

    def predict():
        found = host.package.predict(model, guide, *params, x, **options)
        return {name: part.variance for name, part in found.items()}

    return by_numpy(predict)() if params else predict()


def draws_of(guide, params):
    """Of all sites, in NumPyro."""
    draw = by_numpy(lambda key: guide.sample_posterior(key, params, sample_shape=(20_000,)))
    return draw(jax.random.key(1))


@pytest.mark.parametrize("scales", ["proportional", "free"])
@pytest.mark.parametrize("flow", ["full", "diagonal"])
def test_the_bound_of_a_tridiagonal_posterior_is_the_evidence(host, scales, flow):
    """A regression whose exact posterior is a chain; free scales have no signs."""
    proportional = scales == "proportional"
    scale = TAU * (MEAN if proportional else abs(MEAN))
    precision = np.linalg.inv(covariance(scale, RHO))
    x = NOISE * np.linalg.cholesky(precision - np.eye(5)).T
    y = NOISE**2 * np.linalg.solve(x.T, precision @ MEAN)
    marginal = x @ x.T + NOISE**2 * np.eye(5)
    evidence = -0.5 * (y @ np.linalg.solve(marginal, y))
    evidence -= 0.5 * np.linalg.slogdet(2 * np.pi * marginal)[1]
    spread = {"tau": TAU} if proportional else {"scale": scale}
    with doubles(host):
        params = {"loc": MEAN, "correlation": RHO, **spread}
        params = {name_of(host, "weight", key): host.array(v) for key, v in params.items()}
    guide = host.package.TridiagonalGuide(scales=scales)
    objective = host.package.DeterministicELBO(covariance=flow)
    (loss,) = losses(host, objective, regression(host), {}, x, y, guide=guide, params=params)
    assert -loss == pytest.approx(evidence, abs=1e-8)


@pytest.mark.parametrize(
    ("host", "flow"),
    [("pyro", "full"), ("pyro", "diagonal"), ("numpyro", "full")],
    indirect=["host"],
)
def test_predictions_of_linear_maps_of_a_matrix_keep_its_chain(host, flow):
    """In the words of each host."""
    language, einsum = host.language, torch.einsum if host.name == "pyro" else jnp.einsum
    keep = "keepdim" if host.name == "pyro" else "keepdims"
    rows = np.random.default_rng(0).normal(size=(2, 4))
    programs = {
        "sum": lambda w, x: w.sum(),
        "centred": lambda w, x: (w - w.mean(1, **{keep: True}))[0, 1],
        "halves": lambda w, x: (x[:, :2] @ w[:, :2].T + x[:, 2:] @ w[:, 2:].T)[0, 1],
        "einsum": lambda w, x: einsum("ni,oi->n", x, w)[0],
    }

    def model(x):
        w = language.sample("w", host.dist.Normal(0.0, 1.0).expand([3, 4]).to_event(2))
        for name, program in programs.items():
            language.deterministic(name, program(w, x))

    guide = host.package.TridiagonalGuide(scales="free", correlation=0.4, init_scale=0.3)
    exact, units = covariance(np.full(12, 0.3), 0.4), np.eye(12).reshape(12, 3, 4)
    with doubles(host):
        data = host.array(rows)
        params = started(host, model, guide, data)
        found = variances(host, model, guide, params, data, covariance=flow)
        for name, program in programs.items():
            jacobian = np.array([float(program(unit, data)) for unit in host.array(units)])
            expected = jacobian @ exact @ jacobian
            assert float(found[name]) == pytest.approx(expected, rel=1e-6), name


@pytest.mark.parametrize(
    ("host", "scales"),
    [("pyro", "proportional"), ("pyro", "free"), ("numpyro", "free")],
    indirect=["host"],
)
def test_draws_quantiles_and_summary_are_those_of_the_chain(host, scales):
    guide = host.package.TridiagonalGuide(scales=scales, correlation=0.4, init_scale=0.2)
    params = started(host, network(host), guide, host.x, host.y)
    drawn = guide.sample_posterior(20_000) if host.name == "pyro" else draws_of(guide, *params)
    drawn = {site: np.asarray(values) for site, values in drawn.items()}
    first = drawn["first"].reshape(20_000, -1)
    found = np.corrcoef(first.T)
    signs = np.sign(first.mean(0)) if scales == "proportional" else np.ones(12)
    expected = np.outer(signs, signs) * correlations(12, 0.4)
    assert abs(found - expected).max() < 4.5 / np.sqrt(20_000)
    assert drawn["level"].shape == drawn["scale"].shape == (20_000,)
    (low,) = np.asarray(guide.quantiles(*params, [0.1])["first"])
    np.testing.assert_allclose((drawn["first"] < low).mean(0), 0.1, atol=0.01)
    np.testing.assert_allclose(
        np.asarray(guide.median(*params)["first"]), drawn["first"].mean(0), atol=0.02
    )
    summary = guide.summary(*params)
    assert list(summary) == ["first", "shift", "last"]
    assert summary["first"].size == 12
    assert summary["first"].rho == pytest.approx(0.4)
    if scales == "free":
        means = np.asarray(guide.median(*params)["first"])
        assert summary["first"].tau == pytest.approx(np.exp(np.log(0.2 / abs(means)).mean()))
    else:
        assert summary["first"].tau == pytest.approx(0.2)


@IN_PYRO
def test_groups_share_their_parameters(host):
    groups = {"in": ["first", "shift"], "out": ["last"]}
    guide = host.package.TridiagonalGuide(groups=groups, scales="proportional")
    params = started(host, network(host), guide, host.x, host.y)
    summary = guide.summary(*params)
    assert {name: group.sites for name, group in summary.items()} == {
        "in": ("first", "shift"),
        "out": ("last",),
    }
    assert summary["in"].size == 16
    names = params[0] if params else {n for n, _ in guide.named_parameters()}
    assert sum("tau" in name for name in names) == 2


@IN_PYRO
def test_the_baseline_has_no_correlation(host):
    guide = host.package.TridiagonalGuide(correlation=0.0, learn_correlation=False)
    params = started(host, network(host), guide, host.x, host.y)
    names = params[0] if params else {n for n, _ in guide.named_parameters()}
    assert not any("correlation" in name for name in names)
    assert guide.summary(*params)["first"].rho == 0


@IN_PYRO
def test_means_that_are_zero_begin_elsewhere(host):
    """A standard deviation of zero has no density."""
    start = {"numpyro": "numpyro", "pyro": "pyro.infer.autoguide"}[host.name]
    library = __import__(start, fromlist=["infer"])
    module = library.infer if host.name == "numpyro" else library
    start = module.init_to_value(values={"weight": host.array(np.zeros(3, np.float32))})
    guide = host.package.TridiagonalGuide(scales="proportional", init_loc_fn=start)
    params = started(host, host.regression, guide, host.x, host.y)
    loc = np.asarray(guide.median(*params)["weight"])
    assert ((abs(loc) > 1e-4) & (abs(loc) < 0.011)).all()


@pytest.mark.parametrize(
    ("options", "error", "cause"),
    [
        ({"scales": "fixed"}, ValueError, "scales"),
        ({"init_scale": 0.0}, ValueError, "init_scale"),
        ({"correlation": 0.5}, ValueError, r"in \(-1/2, 1/2\)"),
        ({"groups": [["first", "shift"], ["first", "last"]]}, ValueError, "'first' twice"),
        ({"groups": "first"}, ValueError, "is one name"),
        ({"groups": [["first", "shift"]]}, UnsupportedMoments, "leaves 'last' out"),
        (
            {"groups": [["first", "shift", "last", "level"]]},
            UnsupportedMoments,
            "'level', which is one number",
        ),
        (
            {"groups": [["first", "shift", "last", "other"]]},
            UnsupportedMoments,
            "'other', which is no latent site",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_cause(host, options, error, cause):
    with pytest.raises(error, match=cause):
        started(host, network(host), host.package.TridiagonalGuide(**options), host.x, host.y)


def test_files_and_copies_keep_the_chain(host, tmp_path):
    guide = host.package.TridiagonalGuide(correlation=0.3)
    model = regression(host, 3)
    params = started(host, model, guide, host.x, host.y)
    before = np.asarray(variances(host, model, guide, params, host.x)["obs"])
    elbo = host.package.DeterministicELBO()
    for other in (copy.deepcopy(guide), pickle.loads(pickle.dumps(guide))):
        if host.name == "pyro":
            data = host.x, host.y
            assert elbo.loss(model, other, *data) == pytest.approx(elbo.loss(model, guide, *data))
        found = variances(host, model, other, params, host.x)["obs"]
        np.testing.assert_allclose(np.asarray(found), before, rtol=1e-6)
    path = tmp_path / "chain.safetensors"
    host.package.save(path, model, guide, *params, host.x, host.y)
    fresh(host.name)
    loaded = host.package.load(path, model, host.package.TridiagonalGuide(), host.x)
    found = variances(host, model, loaded.guide, host.given(loaded.params), host.x)["obs"]
    np.testing.assert_allclose(np.asarray(found), before, rtol=1e-6)
    pyro.clear_param_store()
    others = {
        "scales of the guide": {"scales": "proportional"},
        "learn_correlation of the guide": {"learn_correlation": False},
    }
    for cause, options in others.items():
        with pytest.raises(StoredFileError, match=cause):
            host.package.load(path, model, host.package.TridiagonalGuide(**options), host.x)


@IN_PYRO
def test_linear_response_of_free_scales_is_the_exact_posterior(host):
    x = np.random.default_rng(0).normal(size=(20, 5))
    y = x @ MEAN
    precision = np.eye(5) + x.T @ x / NOISE**2
    mean = np.linalg.solve(precision, x.T @ y / NOISE**2)
    model, guide = regression(host), host.package.TridiagonalGuide(scales="free")
    with doubles(host), warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowerVarianceWarning)  # by chains, not by each element
        data = host.array(x), host.array(y)
        fit = host.package.fit(model, guide, *data, method="newton", progress_bar=False)
        given = {"params": fit.params}
        found = host.package.linear_response(model, guide, *data, **given)
        np.testing.assert_allclose(found.location("weight"), mean, rtol=1e-6)
        exact = np.linalg.inv(precision)
        np.testing.assert_allclose(found.covariance("weight"), exact, rtol=1e-6, atol=1e-9)


@IN_PYRO
def test_a_chain_is_no_prior_of_new_data(host):
    guide = host.package.TridiagonalGuide()
    options = {"steps": 2, "progress_bar": False}
    fit = host.package.fit(host.regression, guide, host.x, host.y, **options)
    with pytest.raises(ValueError, match="no expected log-density in closed form"):
        host.package.fit(host.regression, guide, host.x, host.y, prior=fit, **options)
