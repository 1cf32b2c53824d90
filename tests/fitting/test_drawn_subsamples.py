"""Deterministic methods and plates that draw a subsample: the program decides, not two numbers."""

import numpy as np
import pytest

from tests.fitting.models import fresh

Y = np.ones(12, np.float32)  # all rows alike: the loss of every subsample is equal


@pytest.fixture(params=["pyro", "numpyro"])
def either(request):
    return fresh(request.param)


def program(host, part):
    def model(y):
        mean = host.language.sample("mean", host.dist.Normal(0.0, 1.0))
        with host.language.plate("data", len(Y), subsample_size=part) as rows:
            host.language.sample("y", host.dist.Normal(mean, 1.0), obs=y[rows])

    return model


@pytest.mark.parametrize("method", ["newton", "lbfgs"])
def test_a_drawn_subsample_is_refused_though_all_losses_are_equal(either, method):
    with pytest.raises(ValueError, match=r"plate 'data' draws 5 of its 12.* method='adam'"):
        either.fit(program(either, 5), either.array(Y), method=method)


def test_a_plate_that_takes_all_of_its_elements_trains(either):
    fit = either.fit(program(either, len(Y)), either.array(Y), method="lbfgs")
    assert fit.converged


def test_linear_response_refuses_a_model_that_draws_a_subsample(either):
    data = either.array(Y)
    fit = either.fit(program(either, len(Y)), data, method="lbfgs", steps=1)
    with pytest.raises(ValueError, match="plate 'data' draws 5 of its 12"):
        either.package.linear_response(program(either, 5), fit, data)
