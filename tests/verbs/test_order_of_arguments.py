"""Every verb takes the model, what fit returned, and the data."""

import functools

import numpy as np
import pytest

from tests.fitting.models import fresh


@functools.cache
def trained(name):
    """A fit of the host's regression, made once."""
    host = fresh(name)
    return host.fit(host.regression, host.x, host.y, steps=2)


def test_the_former_order_is_taken_with_a_word(host):
    result, options = trained(host.name), {"num_samples": 40, "num_prior_samples": 0}
    model, data, convert = host.regression, (host.x, host.y), host.package.to_inference_data
    fresh(host.name)
    found = convert(model, result, *data, **options)
    fresh(host.name)
    with pytest.warns(FutureWarning, match=r"write to_inference_data\(model, posterior, \.\.\.\)"):
        former = convert(result, model, *data, **options)
    np.testing.assert_array_equal(former.posterior["weight"], found.posterior["weight"])
    with pytest.warns(FutureWarning, match=r"write loo\(model, posterior, \.\.\.\)"):
        host.package.loo(result, model, *data, num_samples=40)


def test_p_values_of_a_model_are_those_of_its_container(host):
    result, model, data = trained(host.name), host.regression, (host.x, host.y)
    statistics = {"max": np.max}
    p_values, convert = host.package.predictive_p_values, host.package.to_inference_data
    fresh(host.name)
    container = convert(model, result, *data, num_samples=30)
    fresh(host.name)
    found = p_values(model, result, *data, statistics=statistics, num_samples=30)
    assert found.equals(p_values(container, statistics, "posterior_predictive"))
    assert found.equals(p_values(container, statistics=statistics))
    by_default = p_values(container)
    named = {"smallest": np.min, "largest": np.max, "standard deviation": np.std}
    assert by_default.equals(p_values(container, named))
