"""A start with an infinite loss: smaller scales and locations are named."""

import math

import numpy as np
import pytest

from moment_inference.objectives.starts import Factors, finite_start, with_valid_start

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(40, 3)) * 100).astype(np.float32)
Y = X[:, 0] / 100


def heteroscedastic(host):
    """A line whose noise has a logarithm that is linear in inputs that nobody standardised."""
    dist, sample, exp = host.dist, host.language.sample, host.np.exp

    def model(x, y=None):
        weight = sample("weight", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
        out = x @ weight
        with host.language.plate("rows", len(x)):
            sample("obs", dist.Normal(out[:, 0], exp(0.5 * out[:, 1])), obs=y)

    return model


@pytest.mark.parametrize("method", ["adam", "lbfgs"])
def test_raw_inputs_begin_where_the_loss_is_finite(host, method):
    with pytest.warns(UserWarning, match="initial scales were multiplied by .*standardise"):
        fit = host.package.fit(
            heteroscedastic(host),
            host.package.DVIGuide(),
            host.array(X),
            host.array(Y),
            method=method,
            steps=20,
            by_draws=False,
            progress_bar=False,
        )
    assert np.isfinite(fit.losses).all()
    assert fit.losses[0] < 1000
    assert fit.loss < fit.losses[0]


def test_the_largest_start_is_taken_unless_a_smaller_one_is_far_better():
    def loss_at(factors):
        if factors.scales > 0.1:
            return math.nan
        return 100.0 if factors.locations == 1 else 50.0

    with pytest.warns(UserWarning, match=r"multiplied by 0.062, as .* now it is 100"):
        assert finite_start(math.inf, loss_at) == Factors(1 / 16, 1.0)


def test_no_start_is_taken_where_none_is_finite():
    assert finite_start(math.nan, lambda factors: math.nan) is None


class Guide:
    """A guide that starts at one."""

    init_scale = 0.02

    def init_loc_fn(self, site=None):
        return np.ones(2)


def test_locations_at_which_a_model_fails_are_made_smaller():
    guide, site = Guide(), {"fn": type("", (), {"support": "Real()"})}

    def begin():
        if guide.init_loc_fn(site)[0] > 0.1:
            raise ValueError("Normal distribution got invalid scale parameter.")
        return guide.init_scale

    with pytest.warns(UserWarning, match="do not take its values"):
        assert with_valid_start(guide, begin) == 0.02 / 16
    assert (guide.init_scale, guide.init_loc_fn(site)[0]) == (0.02, 1.0)  # as they were


def test_other_errors_pass():
    def begin():
        raise ValueError("another one")

    with pytest.raises(ValueError, match="another one"):
        with_valid_start(Guide(), begin)
