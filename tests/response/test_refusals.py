"""Where linear response says nothing, and says why."""

import numpy as np
import pytest

from moment_inference.errors import NarrowerVarianceWarning, NotAnOptimum
from tests.checks.marks import IN_PYRO
from tests.response.models import doubles, generalised, mean_field, response
from tests.response.oracle import NOISE, regression

ROWS, WIDTH = 8, 3.0


@IN_PYRO
def test_what_is_no_optimum_is_refused_with_site_and_decrement(host):
    known = regression("normal")
    loc, scale = known.fitted()
    sites = {"weight": (loc + 0.1, scale)}
    precision = known.x.T @ known.x / NOISE**2 + np.diag(known.prior_scale**-2)
    decrement = 0.005 * precision.sum()
    with pytest.raises(NotAnOptimum) as caught:
        response(host, generalised(host, known), known.x, known.y, sites=sites)
    for part in (f"decrement is {decrement:.2g} nats", "'weight'", 'fit(..., method="newton")'):
        assert part in str(caught.value)
    found = response(
        host, generalised(host, known), known.x, known.y, sites=sites, tolerance=2 * decrement
    )
    np.testing.assert_allclose(found.covariance(), np.linalg.inv(precision), rtol=1e-8)


def product(host):
    """The product of two latents is observed: zero is a saddle."""

    def model(y):
        left = host.language.sample("left", host.dist.Normal(0.0, 1.0))
        right = host.language.sample("right", host.dist.Normal(0.0, 1.0))
        host.observe(y, host.dist.Normal(left * right, NOISE), y)

    return model


@IN_PYRO
def test_a_saddle_is_refused_with_its_direction(host):
    sites = {"left": (0.0, 0.2), "right": (0.0, 0.2)}
    with pytest.raises(NotAnOptimum, match="curves downwards") as caught:
        response(host, product(host), np.full(ROWS, 2.0), sites=sites)
    for part in ("'left'", "'right'", "eigenvalue -"):
        assert part in str(caught.value)


def overlapping(host):
    """Only a sum of two latents is known, whose priors are flat."""

    def model(y):
        flat = host.dist.ImproperUniform(host.dist.constraints.real, (), ())
        left, right = (host.language.sample(name, flat) for name in ("left", "right"))
        host.observe(y, host.dist.Normal(left + right, NOISE), y)

    return model


def test_a_random_loss_is_refused(host):
    known = regression("normal")
    model, guide = generalised(host, known), host.package.DVIGuide()
    objective = host.package.DeterministicELBO(sample_sites=["weight"])
    with doubles(host), pytest.raises(ValueError, match="draws"):
        host.package.linear_response(
            model,
            guide,
            host.array(known.x),
            host.array(known.y),
            params=mean_field(host, weight=known.fitted()),
            objective=objective,
        )


@IN_PYRO
def test_names_that_are_no_sites_are_refused(host):
    known = regression("normal")
    sites = {"weight": known.fitted()}
    found = response(host, generalised(host, known), known.x, known.y, sites=sites)
    with pytest.raises(ValueError, match=r"no latent site .* 'weight'"):
        found.standard_deviation("weigth")
    with pytest.raises(ValueError, match=r"no site .* 'twice'"):
        found.moments("weigth")
    with pytest.raises(ValueError, match=r"what one datum is.*'data'"):
        found.influence("weight", datum="rows")
    with pytest.raises(ValueError, match="between 0 and 1"):
        found.interval(1.5)
    with pytest.raises(ValueError, match="positive integer"):
        found.sample(0, *([None] if host.name == "numpyro" else []))


def wide(host):
    """A guide whose scales are no parameters."""

    def guide(x, y=None):
        loc = host.language.param("weight_loc", host.array(np.zeros(3)))
        host.language.sample("weight", host.dist.Normal(loc, WIDTH).to_event(1))

    return guide


@IN_PYRO
def test_narrower_variances_are_warned_of(host):
    known = regression("normal")
    params = {"weight_loc": host.array(known.fitted()[0])}
    with doubles(host), pytest.warns(NarrowerVarianceWarning, match="'weight'"):
        found = host.package.linear_response(
            generalised(host, known),
            wide(host),
            host.array(known.x),
            host.array(known.y),
            params=params,
        )
    (ratios,) = found.narrower().values()
    np.testing.assert_allclose(ratios, np.diag(found.covariance()) / WIDTH**2)
    assert (np.asarray(ratios) < 0.1).all()


def determined(host):
    """Only a sum of two latents is known, and a third one well."""

    def model(y):
        overlapping(host)(y)
        other = host.language.sample("other", host.dist.Normal(0.0, 1.0))
        with host.language.plate("rows", len(y)):
            host.language.sample("more", host.dist.Normal(other, NOISE), obs=y)

    return model


@IN_PYRO
def test_a_flat_site_does_not_keep_others_from_having_variances(host):
    y, scale = np.random.default_rng(0).normal(size=ROWS), NOISE / np.sqrt(ROWS)
    precision = 1 + ROWS / NOISE**2
    other = y.sum() / NOISE**2 / precision
    sites = {"left": (y.mean(), scale), "right": (0.0, scale), "other": (other, precision**-0.5)}
    found = response(host, determined(host), y, sites=sites)
    np.testing.assert_allclose(found.standard_deviation("other"), precision**-0.5, rtol=1e-8)
    for ask in (found.standard_deviation, found.covariance):
        with pytest.raises(ValueError, match="flat along a direction of 'left', 'right'"):
            ask("left")
    both = found.moments(lambda sites: sites["left"] + sites["right"])
    np.testing.assert_allclose(both.variance, NOISE**2 / ROWS, rtol=1e-8)


def test_rounding_in_single_precision_is_no_flat_direction(host):
    """Of two latents the sum is known to a thousandth, and priors tell the difference."""

    def model(y):
        sites = [host.language.sample(name, host.dist.Normal(0.0, 1.0)) for name in ("u", "v")]
        host.language.sample("obs", host.dist.Normal(sites[0] + sites[1], 1e-3), obs=y)

    scale, one = (1 + 1e6) ** -0.5, lambda number: host.array(np.float32(number))
    params = mean_field(host, u=(0.0, scale), v=(0.0, scale))
    params = {name: one(np.asarray(part)) for name, part in params.items()}
    guide = host.package.DVIGuide()
    found = host.package.linear_response(model, guide, one(0.0), params=params)
    np.testing.assert_allclose(found.standard_deviation("u"), 0.5**0.5, rtol=1e-5)


@IN_PYRO
def test_scales_that_a_fit_leaves_a_little_off_are_not_warned_of(host):
    known = regression("normal")
    loc, scale = known.fitted()
    sites = {"weight": (loc, scale * (1 + 1e-5))}
    found = response(host, generalised(host, known), known.x, known.y, sites=sites)
    assert found.narrower() == {}


def amortised(host):
    """Locations of local latents are a function of the data."""

    def model(y):
        centre = host.language.sample("centre", host.dist.Normal(0.0, 1.0))
        with host.language.plate("data", len(y)):
            local = host.language.sample("local", host.dist.Normal(centre, 1.0))
            host.language.sample("obs", host.dist.Normal(local, NOISE), obs=y)

    return model


def encoder(host):
    param, sample = host.language.param, host.language.sample
    normal = host.dist.Normal
    one = host.array(np.ones(()))

    def guide(y):
        sample("centre", normal(param("centre_loc", 0 * one), (1 + len(y)) ** -0.5))
        with host.language.plate("data", len(y)):
            loc = param("shift", 0 * one) + param("slope", one) * y
            sample("local", normal(loc, (1 + NOISE**-2) ** -0.5))

    return guide


@IN_PYRO
def test_locations_that_are_no_parameters_of_their_own_are_warned_of(host):
    y = np.random.default_rng(0).normal(size=ROWS)
    own, size = 1 + NOISE**-2, len(y)
    slope = NOISE**-2 / own
    centre = slope * y.sum() / (1 + size * slope)
    values = {"centre_loc": centre, "shift": centre / own, "slope": slope}
    with doubles(host):
        model, guide, data = amortised(host), encoder(host), host.array(y)
        params = {name: host.array(np.asarray(value)) for name, value in values.items()}
        with pytest.warns(NarrowerVarianceWarning, match="'local'"):
            found = host.package.linear_response(model, guide, data, params=params)
    assert found.narrower().keys() == {"local"}


@IN_PYRO
def test_intervals_of_mixed_coordinates_are_refused(host):
    counts = np.array([5.0, 3.0, 4.0])
    name = {"numpyro": "shares_auto_loc", "pyro": "AutoDelta.shares"}[host.name]

    def model(observed):
        shares = host.language.sample("shares", host.dist.Dirichlet(host.array(np.full(3, 2.0))))
        host.language.sample("obs", host.dist.Multinomial(12, shares), obs=observed)

    with doubles(host):
        params = {name: host.array((counts + 1) / (counts + 1).sum())}
        guide, objective = host.autoguide.AutoDelta(model), host.language.infer.Trace_ELBO()
        found = host.package.linear_response(
            model, guide, host.array(counts), params=params, objective=objective
        )
    with pytest.raises(ValueError, match=r"'shares' are mixed on its support.*sample"):
        found.interval(0.9)


def test_foreign_parameters_are_refused(host):
    known = regression("normal")
    model = generalised(host, known)
    with doubles(host):
        x, y = host.array(known.x), host.array(known.y)
        right = mean_field(host, weight=known.fitted())
    first, *_ = right
    cases = {
        "params has 'other'; model and guide have": {"other": host.array(np.zeros(3))},
        rf"parameter '{first}' has the shape \(2,\) in params, and \(3,\)": {
            **right,
            first: host.array(np.ones(2)),
        },
    }
    for message, params in cases.items():
        with doubles(host), pytest.raises(ValueError, match=message):
            host.package.linear_response(model, host.package.DVIGuide(), x, y, params=params)
    with pytest.raises(TypeError, match=r"a dictionary as of fit.*, got list"):
        host.package.linear_response(model, host.package.DVIGuide(), x, y, params=[1])


@IN_PYRO
def test_functions_that_moments_do_not_propagate_through_are_left_to_draws(host):
    known = regression("normal")
    sites = {"weight": known.fitted()}
    found = response(host, generalised(host, known), known.x, known.y, sites=sites)
    with pytest.raises(TypeError, match=r"response\.sample"):
        found.moments(lambda sites: sites["weight"][0] / sites["weight"][1])
    with pytest.raises(ValueError, match="between 0 and 1"):
        found.interval("weight")


def test_data_that_are_no_numbers_are_not_sent_back_to_training(host):
    known = regression("normal")
    sites, y = {"weight": known.fitted()}, known.y.copy()
    y[3] = np.nan
    with pytest.raises((ValueError, TypeError), match="NaN"):
        response(host, generalised(host, known), known.x, y, sites=sites)
