"""NumPyro's own guides under the analytic ELBO: exact oracles first, then Trace_ELBO."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions.transforms import AffineTransform
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import (
    AutoBNAFNormal,
    AutoDAIS,
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoNormal,
)

from numpyro_moments import SVI, DeterministicELBO, DVIGuide, UnsupportedMoments
from tests.checks.jaxprs import by_numpy
from tests.numpyro import models
from tests.oracles.numpyro_samples import perturbed

KEY, SCALE = jax.random.key(0), 0.2
X, Y = (jnp.asarray(array) for array in models.data())
DRAWS = 1500


def linear(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.5, 2.0))
    models.observe(x, dist.Normal(x @ w + b, 0.3), y)


def with_noise(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-0.5, 0.5))
    models.observe(x, dist.Normal(x @ w, noise), y)


def at_ones(site=None):
    if site is None:
        return partial(at_ones)
    latent = site["type"] == "sample" and not site["is_observed"]
    return jnp.ones(site["fn"].shape()) if latent else None


OPTIONS = {"init_loc_fn": at_ones, "init_scale": SCALE}


def listed(model):
    guide = AutoGuideList(model)
    guide.append(AutoDiagonalNormal(handlers.block(model, hide=["noise"]), **OPTIONS))
    guide.append(AutoNormal(handlers.block(model, expose=["noise"]), prefix="other", **OPTIONS))
    return guide


MEAN_FIELD = {
    "AutoNormal": lambda model: AutoNormal(model, **OPTIONS),
    "AutoDiagonalNormal": lambda model: AutoDiagonalNormal(model, **OPTIONS),
    "AutoGuideList": listed,
    "AutoDiagonalNormal in a handler": lambda model: handlers.scale(
        AutoDiagonalNormal(model, **OPTIONS), scale=1.0
    ),
}


@pytest.fixture(scope="module")
def reference():
    guide = DVIGuide(with_noise, **OPTIONS)
    svi = SVI(with_noise, guide, DeterministicELBO())
    return float(by_numpy(lambda key: svi.evaluate(svi.init(key, X, Y), X, Y))(KEY))


@pytest.mark.parametrize("name", MEAN_FIELD)
def test_mean_field_guides_are_one_posterior(reference, name):
    """One q in several parametrisations has one loss; named sites are drawn."""
    guide = MEAN_FIELD[name](with_noise)
    svi = SVI(with_noise, guide, DeterministicELBO())
    state = svi.init(KEY, X, Y)  # not traced: guides of the host keep what they compute here
    free = svi.optim.get_params(state.optim_state)

    def loss(free, key, covariance, *sample_sites):
        elbo = DeterministicELBO(covariance=covariance, sample_sites=sample_sites)
        return elbo.loss(key, svi.constrain_fn(free), with_noise, guide, X, Y)

    @by_numpy
    def together(free):
        exact = jax.value_and_grad(loss)(free, KEY, "full"), loss(free, KEY, "diagonal")
        keys = jax.random.split(KEY, DRAWS)
        draws = [jax.vmap(lambda k, s=s: loss(free, k, "full", s))(keys) for s in ("noise", "w")]
        return *exact, draws

    (full, gradients), diagonal, draws = together(free)
    assert full == pytest.approx(float(reference), rel=1e-5)
    assert diagonal == pytest.approx(float(reference), rel=1e-5)
    assert all(jnp.isfinite(g).all() and g.any() for g in jax.tree.leaves(gradients))
    for losses in draws:
        assert losses.std() > 0
        assert abs(losses.mean() - reference) < 4 * losses.std() / DRAWS**0.5


def test_a_network_names_its_sites():
    model = models.network
    guide = AutoDiagonalNormal(model, **OPTIONS)
    own = DVIGuide(model, **OPTIONS)
    losses = []
    for each in (guide, own):
        svi = SVI(model, each, DeterministicELBO())
        loss = by_numpy(lambda key, svi=svi: svi.evaluate(svi.init(key, X, Y), X, Y))
        losses.append(loss(KEY))
    assert losses[0] == pytest.approx(float(losses[1]), rel=1e-5)

    def rounded(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("obs", dist.Normal(jnp.round(x @ w), 1.0).to_event(1), obs=y)

    guide = AutoDiagonalNormal(rounded, **OPTIONS)
    with pytest.raises(UnsupportedMoments, match=r"round(?s:.)*latent sites: w\n"):
        DeterministicELBO().loss(KEY, {}, rounded, handlers.seed(guide, KEY), X, Y)


@pytest.mark.parametrize("make_guide", [AutoDelta, AutoLaplaceApproximation])
def test_point_estimates_give_the_log_joint(make_guide):
    guide = make_guide(with_noise, init_loc_fn=at_ones)
    params = perturbed(guide, X, Y)
    arguments = KEY, params, with_noise, guide, X, Y
    expected = Trace_ELBO().loss(*arguments)
    assert DeterministicELBO().loss(*arguments) == pytest.approx(float(expected), rel=1e-6)


FLOWS = {
    "AutoIAFNormal": lambda: AutoIAFNormal(linear, hidden_dims=[4]),
    "AutoBNAFNormal": lambda: AutoBNAFNormal(linear, hidden_factors=[2]),
    "AutoDAIS": lambda: AutoDAIS(linear, K=2),
}


@pytest.mark.parametrize("name", FLOWS)
def test_flows_are_refused_or_drawn_whole(name):
    guide = FLOWS[name]()
    params = perturbed(guide, X, Y)
    arguments = params, linear, guide, X, Y
    with pytest.raises(
        UnsupportedMoments, match=rf"{name} is not Gauss(?s:.)*sample_sites=\['b', 'w'\]"
    ):
        DeterministicELBO().loss(KEY, *arguments)
    with pytest.raises(UnsupportedMoments, match=r"cannot be drawn in part \(b\)"):
        DeterministicELBO(sample_sites=["b"]).loss(KEY, *arguments)

    @by_numpy
    @jax.vmap
    def losses(key):
        drawn = DeterministicELBO(sample_sites=["w", "b"]).loss(key, *arguments)
        return drawn, Trace_ELBO().loss(key, *arguments)

    drawn, expected = losses(jax.random.split(KEY, DRAWS))
    error = (drawn.var() / DRAWS + expected.var() / DRAWS) ** 0.5
    assert abs(drawn.mean() - expected.mean()) < 4 * error


def one_site(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("obs", dist.Normal(a, 0.5), obs=y)


def test_auxiliary_site_of_a_hand_written_guide():
    """A site that only the guide has, and a function of it: its entropy counts once."""

    def guide(y):
        hidden = numpyro.sample("hidden", dist.Normal(0.2, 0.7), infer={"is_auxiliary": True})
        numpyro.sample("a", dist.Delta(2.0 * hidden + 1.0, log_density=-jnp.log(2.0)))

    def direct(y):
        numpyro.sample("a", dist.Normal(1.4, 1.4))

    def transformed(y):
        normal = dist.Normal(0.2, 0.7)
        numpyro.sample("a", dist.TransformedDistribution(normal, AffineTransform(1.0, 2.0)))

    def loss(guide, key=KEY, **options):
        elbo = DeterministicELBO(**options)
        return float(by_numpy(lambda key: elbo.loss(key, {}, one_site, guide, 0.3))(key))

    expected = loss(direct)
    assert loss(guide) == pytest.approx(float(expected), rel=1e-6)
    assert loss(transformed) == pytest.approx(float(expected), rel=1e-6)
    assert loss(guide, sample_sites=["hidden"]) != pytest.approx(float(expected), rel=1e-3)
    with pytest.raises(UnsupportedMoments, match=r"'a' of sample_sites is a function.*\(hidden\)"):
        loss(guide, sample_sites=["a"])


def test_a_guide_inside_a_function():
    inner = AutoDiagonalNormal(linear, **OPTIONS)
    params = perturbed(inner, X, Y)
    expected = DeterministicELBO().loss(KEY, params, linear, inner, X, Y)
    outer = lambda x, y: inner(x, y)  # noqa: E731
    loss = DeterministicELBO().loss(KEY, params, linear, outer, X, Y)
    assert loss == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(UnsupportedMoments, match=r"'w' of sample_sites(?s:.)*guide itself"):
        DeterministicELBO(sample_sites=["w"]).loss(KEY, params, linear, outer, X, Y)


def test_drawn_sites_differ_from_each_other():
    """Every site of a vector has noise of its own."""

    def two(y):
        first, second = (numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in ("a", "b"))
        numpyro.sample("obs", dist.Normal(first - second, 1.0), obs=y)

    guide = AutoDiagonalNormal(two, init_loc_fn=at_ones, init_scale=1.0)
    params = perturbed(guide, 0.0, spread=0.0)
    drawn = DeterministicELBO(sample_sites=["a", "b"], sum_sites=False)
    loss = by_numpy(jax.vmap(lambda key: drawn.loss(key, params, two, guide, 0.0)["obs"]))
    fits = np.asarray(loss(jax.random.split(KEY, DRAWS)))
    expected = 0.5 * np.log(2 * np.pi) + 1.0  # E (a − b)² / 2 = 1
    assert abs(fits.mean() - expected) < 4 * fits.std() / DRAWS**0.5
