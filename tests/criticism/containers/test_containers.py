"""Groups, dimensions and coordinates of containers, from both hosts."""

import arviz as az
import numpy as np
import pytest
import xarray

from moment_inference.criticism.arviz_access import groups_of
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import (
    NOISE,
    X,
    Y,
    convert,
    drawing,
    gaussian,
    line,
    scaled,
)

GROUPS = {
    *("posterior", "posterior_predictive", "log_likelihood", "sample_stats", "prior"),
    *("prior_predictive", "observed_data", "constant_data"),
}


def guide_of(host):
    return drawing(host, *gaussian(X, Y))


def shapes(group):
    return {name: dict(zip(group[name].dims, group[name].shape, strict=True)) for name in group}


def drawn(**axes):
    return {"chain": 1, "draw": 50, **axes}


def test_groups_with_their_dimensions(host):
    data = convert(host, guide_of(host), line(host), X, Y, predictions=(host.array(X[:7]),))
    assert {*groups_of(data)} == {*GROUPS, "predictions", "predictions_constant_data"}
    assert shapes(data.posterior) == {"weight": drawn(weight_dim_0=3), "mean": drawn(data=20)}
    assert shapes(data.log_likelihood) == {"obs": drawn(data=20)}
    assert shapes(data.posterior_predictive) == {"obs": drawn(data=20)}
    assert shapes(data.observed_data) == {"obs": {"data": 20}}
    assert shapes(data.constant_data) == {"x": {"data": 20, "x_dim_1": 3}}
    assert shapes(data.predictions) == {"mean": drawn(data=7), "obs": drawn(data=7)}
    assert shapes(data.predictions_constant_data) == {"x": {"data": 7, "x_dim_1": 3}}
    assert shapes(data.sample_stats) == {"lp": drawn(), "log_q": drawn()}
    assert shapes(data.prior)["weight"] == {"chain": 1, "draw": 20, "weight_dim_0": 3}
    assert shapes(data.prior_predictive) == {"obs": {"chain": 1, "draw": 20, "data": 20}}
    np.testing.assert_allclose(data.observed_data["obs"], Y)
    means = data.posterior["weight"].values @ X.T
    np.testing.assert_allclose(data.posterior["mean"], means, rtol=1e-10)


@IN_PYRO
def test_names_and_coordinates_of_the_user(host):
    coords = {"coefficient": ["a", "b", "c"], "data": [f"row {row}" for row in range(20)]}
    dims = {"weight": ["coefficient"], "x": ["data", "coefficient"]}
    predictions = {"x": host.array(X[:7])}
    options = {"dims": dims, "coords": coords, "predictions": predictions}
    data = convert(host, guide_of(host), line(host), X, Y, **options)
    assert [*data.posterior["weight"].coords["coefficient"].values] == ["a", "b", "c"]
    assert data.log_likelihood["obs"].coords["data"].values[3] == "row 3"
    assert data.constant_data["x"].dims == ("data", "coefficient")
    assert [*data.predictions["obs"].coords["data"].values] == [*range(7)]
    assert az.summary(data, var_names=["weight"]).index[1] == "weight[b]"


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"mean": ["a", "b"]}, r"2 axes of site 'mean' \(a, b\), which has 1"),
        ({"x": ["a"]}, r"1 axes of argument 'x' \(a\), which has 2"),
        ({"nothing": ["a"]}, "dims names 'nothing'; there are 'weight'"),
        ({"mean": ["draw"]}, "ArviZ's own axes"),
    ],
)
@IN_PYRO
def test_names_that_do_not_fit(host, dims, said):
    with pytest.raises(ValueError, match=said):
        convert(host, guide_of(host), line(host), X, Y, dims=dims, num_prior_samples=0)


def test_nested_plates_events_and_names_that_are_taken(host):
    def model(x, y=None):
        weight = host.weight()
        with host.language.plate("draw", 5, dim=-2), host.language.plate("x", 4, dim=-1):
            mean = (x @ weight).reshape(5, 4)[..., None]
            noise = host.dist.Normal(mean, host.array(np.ones(2))).to_event(1)
            host.language.sample("obs", noise, obs=y)

    pairs = np.random.default_rng(0).normal(size=(5, 4, 2))
    data = convert(host, guide_of(host), model, X, pairs)
    assert shapes(data.log_likelihood) == {"obs": drawn(draw_plate=5, x_plate=4)}
    known = {"draw_plate": 5, "x_plate": 4, "obs_dim_2": 2}
    assert shapes(data.observed_data) == {"obs": known}
    assert shapes(data.posterior_predictive) == {"obs": drawn(**known)}


@IN_PYRO
def test_observations_that_are_fewer_than_their_plate(host):
    """They are those of every element."""

    def model(x, y=None):
        weight = host.weight()
        host.observe(x, host.dist.Normal(x @ weight, NOISE), y)

    data = convert(host, guide_of(host), model, X, np.array(0.5))
    assert shapes(data.log_likelihood) == {"obs": drawn(data=20)}
    np.testing.assert_array_equal(data.observed_data["obs"], np.full(20, 0.5))


@pytest.mark.parametrize("rows", [1, 10])
@IN_PYRO
def test_a_part_of_the_rows_of_a_plate_is_refused(host, rows):
    def model(x, y=None):
        weight = host.weight()
        with host.language.plate("data", 20, subsample_size=len(x)):
            host.language.sample("obs", host.dist.Normal(x @ weight, NOISE), obs=y)

    with pytest.raises(ValueError, match=rf"takes {rows} of the 20 elements of the plate 'data'"):
        convert(host, guide_of(host), model, X[:rows], Y[:rows])


def test_replicates_are_drawn_in_the_order_of_the_program(host):
    def model(x, y=None):
        host.weight()
        first = host.language.sample("first", host.dist.Normal(0.0, 1.0), obs=y)
        host.language.sample("second", host.dist.Normal(10 * first, 0.1), obs=y)

    data = convert(host, guide_of(host), model, X, np.array(0.0), num_samples=400)
    first, second = (data.posterior_predictive[name].values[0] for name in ("first", "second"))
    assert abs(first.std() - 1) < 4 / 800**0.5
    assert abs((second - 10 * first).std() - 0.1) < 0.4 / 800**0.5


@IN_PYRO
def test_draws_of_the_prior(host):
    data = convert(host, guide_of(host), line(host), X, Y, num_prior_samples=2000)
    weight, mean = (data.prior[name].values[0] for name in ("weight", "mean"))
    assert abs(weight.mean()) < 4 / 6000**0.5
    assert abs(weight.std() - 1) < 4 / 12000**0.5
    noise = (data.prior_predictive["obs"].values[0] - mean).std()
    assert abs(noise / NOISE - 1) < 4 / (2 * mean.size) ** 0.5


def test_an_improper_prior_is_left_out(host):
    def model(x, y=None):
        real = host.dist.constraints.real
        with host.language.plate("columns", 3):
            improper = host.dist.ImproperUniform(real, (), ())
            weight = host.language.sample("weight", improper)
        host.observe(x, host.dist.Normal(x @ weight, NOISE), y)

    def guide(x, y=None):
        with host.language.plate("columns", 3):
            host.language.sample("weight", host.dist.Normal(0.0, 1.0))

    with pytest.warns(UserWarning, match="no group 'prior': a prior is improper"):
        data = convert(host, guide, model, X, Y)
    assert {*groups_of(data)} == GROUPS - {"prior", "prior_predictive"}


@IN_PYRO
def test_a_file_keeps_all(host, tmp_path):
    data = convert(host, guide_of(host), line(host), X, Y, predictions=(host.array(X[:7]),))
    data.to_netcdf(str(tmp_path / "fit.nc"))
    found = az.from_netcdf(str(tmp_path / "fit.nc"))
    assert groups_of(found) == groups_of(data)
    for group in groups_of(data):
        xarray.testing.assert_equal(found[group], data[group])
        for name, value in data[group].attrs.items():
            np.testing.assert_array_equal(found[group].attrs[name], value)
    assert found.posterior.attrs["inference_library"] == "pyro-moments"


@IN_PYRO
def test_one_draw(host):
    data = convert(host, guide_of(host), line(host), X, Y, num_samples=1, num_prior_samples=1)
    assert data.posterior["mean"].shape == (1, 1, 20)
    with pytest.raises(ValueError, match="positive"):
        convert(host, guide_of(host), line(host), X, Y, num_samples=0)


@IN_PYRO
def test_other_models_and_other_things_are_refused(host):
    with pytest.raises(ValueError, match="there are no draws of 'scale'"):
        convert(host, guide_of(host), scaled(host), X, Y)
    wider = drawing(host, *gaussian(X, Y), (0.0, 1.0))
    with pytest.raises(ValueError, match="the model has no site 'scale'"):
        convert(host, wider, line(host), X, Y)
    with pytest.raises(TypeError, match="not int"):
        convert(host, 3, line(host), X, Y)
    with pytest.raises(TypeError, match="a tuple or a dictionary by name, not"):
        convert(host, guide_of(host), line(host), X, Y, predictions=[X])
