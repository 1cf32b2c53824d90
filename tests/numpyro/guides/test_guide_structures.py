"""DVIGuide follows every structure of a model as NumPyro's own AutoNormal does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer import Predictive, Trace_ELBO, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal

from moment_guides.numpyro.mean_field import DVIGuide
from tests.checks.jaxprs import by_numpy
from tests.numpyro.guides.guide_models import MODELS

KEY = jax.random.key(3)
LEVELS = (0.25, 0.75)


def start(guide, model):
    """The guide's parameters at its start."""
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace(*model.args)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}


def made_up(shapes):
    """Parameters that are nowhere special."""
    return {
        name: jnp.asarray(0.2 + 0.1 * np.sin(np.arange(shape.size)).reshape(shape.shape), float)
        for name, shape in shapes.items()
    }


def sites(guide, model, params):
    """Every site of the guide, drawn with one key: all that NumPyro's objectives look at."""
    seeded = handlers.seed(handlers.substitute(guide, params), KEY)
    trace = handlers.trace(seeded).get_trace(*model.args)
    return {
        name: (site["value"], site["fn"].log_prob(site["value"]), site["scale"])
        for name, site in trace.items()
        if site["type"] == "sample"
    } | {name: site["value"] for name, site in trace.items() if site["type"] == "plate"}


def uses(guide, model, params):
    """What NumPyro's own objectives and its Predictive make of a guide."""
    args = (params, model.function, guide, *model.args)
    options = {"params": params, "num_samples": 2}
    return {
        "trace": Trace_ELBO().loss(KEY, *args),
        "mean field": TraceMeanField_ELBO().loss(KEY, *args),
        "predictive": Predictive(model.function, guide=guide, **options)(KEY, model.args[0]),
        "predictive of the guide": Predictive(guide, **options)(KEY, model.args[0]),
    }


def assert_same(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for (path, left), right in zip(
        jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
    ):
        assert np.isfinite(left).all()
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6, err_msg=str(path))


@pytest.fixture(scope="module", params=MODELS)
def pair(request):
    """A model, our guide, the host's, and parameters for both."""
    model = MODELS[request.param]
    guide, host = DVIGuide(model.function), AutoNormal(model.function)
    shapes, expected = jax.eval_shape(lambda: [start(either, model) for either in (guide, host)])
    assert [(name, one.shape, one.dtype) for name, one in shapes.items()] == [
        (name, one.shape, one.dtype) for name, one in expected.items()
    ]
    return model, guide, host, made_up(shapes)


def test_parameters_have_the_shapes_of_the_latent_sites(pair):
    model, _, _, params = pair
    assert {name: value.shape for name, value in params.items()} == {
        f"{name}_auto_{role}": shape
        for name, shape in model.latent_shapes.items()
        for role in ("loc", "scale")
    }


def test_sites_and_summaries_are_those_of_autonormal(pair):
    model, guide, host, params = pair

    @by_numpy
    def both(params):
        return [
            (sites(either, model, params), either.median(params), either.quantiles(params, LEVELS))
            for either in (guide, host)
        ]

    ours, theirs = both(params)
    quantiles = ours[-1]
    if "below" in quantiles:  # the host forgets that this support's transform falls
        quantiles["below"] = quantiles["below"][::-1]
    assert_same(ours, theirs)


@pytest.mark.parametrize("pair", ["subsampled"], indirect=True)
def test_host_objectives_and_predictive_see_the_same_as_with_autonormal(pair):
    model, guide, host, params = pair
    both = by_numpy(lambda params: [uses(either, model, params) for either in (guide, host)])
    assert_same(*both(params))


@pytest.mark.parametrize("pair", ["supports", "subsampled"], indirect=True)
def test_draws_and_distributions_of_the_posterior_agree(pair):
    model, guide, _, params = pair
    draws = by_numpy(lambda key: guide.sample_posterior(key, params, sample_shape=(2, 3)))(KEY)
    posterior = guide.get_posterior(params)
    assert posterior.keys() == draws.keys() == model.latent_shapes.keys()
    for name, fn in posterior.items():
        assert draws[name].shape == (2, 3, *fn.shape())
        assert fn.support(np.asarray(draws[name])).all()
