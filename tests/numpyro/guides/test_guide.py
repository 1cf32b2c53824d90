"""DVIGuide follows the conventions of NumPyro's guides."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import SVI, Predictive, Trace_ELBO, init_to_median, init_to_sample, init_to_value
from numpyro.infer.autoguide import AutoDelta, AutoGuideList

from moment_calculus.errors import UnsupportedMoments
from moment_guides.families.mean_field import initial_noise_scale
from moment_guides.numpyro.mean_field import DVIGuide
from numpyro_moments import DeterministicELBO, predict
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import evaluated

KEY = jax.random.key(0)
X = jnp.sin(jnp.arange(24.0)).reshape(8, 3)
Y = X @ jnp.array([1.0, -0.5, 0.3])


def regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    b = numpyro.sample("b", dist.Normal(-2.0, 1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(x @ w + b, 0.3), obs=y)


def start(guide, *args, key=KEY):
    """The parameters at the guide's start, by one program."""
    return evaluated(lambda: started(guide, *args, key=key))


def started(guide, *args, key):
    """The same, operation by operation."""
    trace = handlers.trace(handlers.seed(guide, key)).get_trace(*args)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}


def test_a_guide_bound_later_is_the_same():
    lazy = DVIGuide()
    lazy.bind(regression)
    lazy.bind(None)  # bound already
    ours, bound = start(lazy, X, Y), start(DVIGuide(regression), X, Y)
    assert ours.keys() == bound.keys()
    assert all((ours[name] == bound[name]).all() for name in ours)


def test_a_guide_without_sites_says_what_to_do():
    guide = DVIGuide(regression)
    for question in (guide.median, guide.get_posterior):
        with pytest.raises(RuntimeError, match=r"svi\.init"):
            question({})


def test_a_guide_without_a_key_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"handlers\.seed"), handlers.trace():
        DVIGuide(regression)(X, Y)


def test_initial_scale_and_locations():
    def network(x):
        numpyro.sample("matrix", dist.Normal(jnp.zeros((60, 40)), 1.0).to_event(2))
        numpyro.sample("bias", dist.Normal(jnp.zeros(500), 1.0).to_event(1))
        numpyro.sample("tight", dist.Normal(jnp.full(500, 3.0), 1e-3).to_event(1))
        numpyro.sample("scalar", dist.Normal(-2.0, 1.0).expand([5]))
        numpyro.sample("wild", dist.Cauchy(jnp.zeros(500), 1.0).to_event(1))
        numpyro.sample("positive", dist.Gamma(jnp.ones(4), 1.0).to_event(1))
        numpyro.sample("improper", dist.ImproperUniform(dist.constraints.real, (), (500,)))

    params = by_numpy(lambda: start(DVIGuide(network, init_scale=0.01), X))()
    loc = {name.removesuffix("_auto_loc"): value for name, value in params.items()}
    assert (params["matrix_auto_scale"] == 0.01).all()
    assert loc["matrix"].std() == pytest.approx((2 / 100) ** 0.5, rel=0.05)
    for name in ("bias", "wild", "improper"):
        assert loc[name].std() == pytest.approx(0.5, rel=0.1), name
    assert loc["tight"].std() == pytest.approx(1e-3, rel=0.1)
    assert loc["tight"].mean() == pytest.approx(3.0, abs=1e-3)
    assert (loc["scalar"] == -2.0).all()
    assert (loc["positive"] == 0.0).all()


def test_initialisers_of_the_host_and_of_the_user_are_used():
    values = {"w": jnp.array([1.0, 2.0, 3.0]), "b": jnp.array(0.5)}
    for initialiser, expected in (
        (init_to_value(values=values), values["w"]),
        (lambda site: jnp.ones(site["fn"].shape()), jnp.ones(3)),
    ):
        params = start(DVIGuide(regression, init_loc_fn=initialiser), X, Y)
        np.testing.assert_array_equal(params["w_auto_loc"], expected)
    median = start(DVIGuide(regression, init_loc_fn=init_to_median(num_samples=1001)), X, Y)
    np.testing.assert_allclose(median["b_auto_loc"], -2.0, atol=0.15)


def test_every_start_draws_its_own_locations():
    guide = DVIGuide(regression)
    starts = by_numpy(jax.vmap(lambda key: started(guide, X, Y, key=key)))
    w = starts(jax.random.split(KEY, 3))["w_auto_loc"]
    assert len(np.unique(w)) == w.size
    # Nothing of the compiled run was kept: the guide starts again, outside of it.
    assert not np.isin(started(guide, X, Y, key=jax.random.key(9))["w_auto_loc"], w).any()


def part_of_the_data(x):
    numpyro.sample("scale", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 6, subsample_size=2):
        numpyro.sample("local", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


@pytest.mark.parametrize(("model", "data"), [(regression, (X, Y)), (part_of_the_data, (X,))])
def test_a_second_start_from_the_same_key_is_the_first(model, data):
    guide = DVIGuide(model, init_loc_fn=init_to_sample)
    svi = SVI(model, guide, numpyro.optim.Adam(1e-2), Trace_ELBO())
    first, second, other = evaluated(
        lambda: [svi.get_params(svi.init(jax.random.key(seed), *data)) for seed in (0, 0, 1)]
    )
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
    assert any((values != other[name]).any() for name, values in first.items())


def test_prefix_and_init_scale_are_checked_and_used():
    assert start(DVIGuide(regression, prefix="q"), X, Y).keys() >= {"w_q_loc", "b_q_scale"}
    with pytest.raises(ValueError, match="init_scale=0 must be positive"):
        DVIGuide(init_scale=0)


def test_a_pickled_guide_knows_its_sites_but_no_data():
    guide = DVIGuide(regression)
    params = start(guide, X, Y)
    stored = pickle.dumps(guide)
    assert len(stored) < 2000
    restored = pickle.loads(stored)
    assert restored.model is None
    np.testing.assert_array_equal(restored.median(params)["w"], guide.median(params)["w"])
    draws = Predictive(restored, params=params, num_samples=3)(KEY, X)
    assert draws["w"].shape == (3, 3)
    with pytest.raises(RuntimeError, match="has not met a model"):
        start(restored, X, Y)


def test_quantiles_rise_where_the_transform_falls():
    def model():
        numpyro.sample("below", dist.TruncatedNormal(high=jnp.array([-1.0, 1.0])).to_event(1))
        numpyro.sample("above", dist.LogNormal(0.0, 1.0))

    guide = DVIGuide(model)
    params = started(guide, key=KEY)
    levels = evaluated(lambda params: guide.quantiles(params, [0.1, 0.5, 0.9]), params)
    for values in levels.values():
        assert (jnp.diff(values, axis=0) > 0).all()


def test_guides_of_parts_combine():
    def two(x):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("b", dist.Normal(a, 1.0))

    guide = AutoGuideList(two)
    guide.append(DVIGuide(handlers.block(two, hide=["b"])))
    guide.append(AutoDelta(handlers.block(two, hide=["a"])))
    assert start(guide, X).keys() == {"a_auto_loc", "a_auto_scale", "b_auto_loc"}


def test_create_plates_follows_the_size_of_the_subsample():
    def model(size):
        with plate(size):
            numpyro.sample("local", dist.Normal(0.0, 1.0))

    def plate(size):
        return numpyro.plate("data", 6, subsample_size=size, dim=-1)

    guide = DVIGuide(model, create_plates=plate)
    params = start(guide, 2)
    assert params["local_auto_loc"].shape == (6,)
    trace = handlers.trace(handlers.seed(handlers.substitute(guide, params), KEY)).get_trace(3)
    assert trace["local"]["value"].shape == (3,)
    assert trace["local"]["scale"] == 2.0


def test_plates_inside_scan():
    def step(state, _):
        with numpyro.plate("series", 2, subsample_size=size):
            return state, numpyro.sample("scale", dist.LogNormal(0.0, 1.0))

    def model():
        scan(step, 0.0, None, length=4)

    size = None
    assert start(DVIGuide(model))["scale_auto_loc"].shape == (4, 2)
    size = 1
    with pytest.raises(UnsupportedMoments, match="plate 'series' is subsampled"):
        start(DVIGuide(model))


def dependent(x):
    upper = numpyro.sample("upper", dist.LogNormal(0.0, 1.0))
    numpyro.sample("inner", dist.Uniform(0.0, upper))


def of_the_subsample(x):
    with numpyro.plate("data", 8, subsample_size=2) as index:
        numpyro.sample("inner", dist.Uniform(0.0, 2.0 + x[index, 0]))


@pytest.mark.parametrize("model", [dependent, of_the_subsample])
def test_a_support_that_moves_is_refused(model):
    with pytest.raises(UnsupportedMoments, match=r"'inner': its support depends on (upper|data)"):
        start(DVIGuide(model), X)


def test_a_support_may_depend_on_the_data():
    def model(x):
        numpyro.sample("inner", dist.Uniform(x.min(), x.max()))

    guide = DVIGuide(model)
    median = guide.median(started(guide, X, key=KEY))["inner"]
    assert median == pytest.approx((X.min() + X.max()) / 2)


def test_discrete_and_delta_sites_are_refused():
    def discrete():
        numpyro.sample("z", dist.Bernoulli(0.5))

    def delta():
        numpyro.sample("z", dist.Delta(0.5))

    with pytest.raises(ValueError, match="cannot handle discrete sample site 'z'"):
        start(DVIGuide(discrete))
    with pytest.raises(ValueError, match=r"'z' has a delta distribution.*deterministic"):
        start(DVIGuide(delta))


def test_double_precision_is_kept():
    with jax.enable_x64(True):
        params = start(DVIGuide(regression), np.asarray(X), np.asarray(Y))
    assert {str(value.dtype) for value in params.values()} == {"float64"}


def test_a_model_without_latent_sites_has_an_empty_posterior():
    guide = DVIGuide(lambda x: numpyro.sample("obs", dist.Normal(x, 1.0), obs=0.0))
    assert start(guide, 1.0) == {}
    assert guide.median({}) == guide.sample_posterior(KEY, {}) == {}


@pytest.mark.parametrize("kernel", [(3, 3, 16, 32), (32, 16, 3, 3)])
def test_kernels_of_convolutions_spread_by_their_fans_in_any_layout(kernel):
    assert initial_noise_scale(4, kernel) == pytest.approx((2 / (9 * (16 + 32))) ** 0.5)
    assert initial_noise_scale(2, (7, 16, 32)) == initial_noise_scale(
        2, (16, 32)
    )  # a plate of matrices


def test_a_fresh_guide_predicts_with_trained_parameters():
    def model(x, y=None):
        weight = numpyro.sample("weight", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("obs", dist.Normal(x @ weight, 1.0), obs=y)

    x = jnp.linspace(-1, 1, 10).reshape(5, 2)
    svi = SVI(model, DVIGuide(model), numpyro.optim.Adam(0.1), DeterministicELBO())
    params = svi.get_params(svi.init(jax.random.key(0), x, x[:, 0]))
    ours, theirs = (predict(model, guide, params, x) for guide in (DVIGuide(), svi.guide))
    assert ours.keys() == theirs.keys() == {"obs"}
    np.testing.assert_allclose(ours["obs"].mean, theirs["obs"].mean)
    with pytest.raises(ValueError, match="none of the parameters other_auto_loc is of a site"):
        predict(model, DVIGuide(), {"other_auto_loc": jnp.zeros(2)}, x)
