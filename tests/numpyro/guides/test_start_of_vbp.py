"""VBPGuide starts as variance back-propagation does."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_moments import VBPGuide
from tests.checks.jaxprs import by_numpy
from tests.numpyro.guides.test_guide import start


def test_the_start_of_variance_back_propagation():
    def network(x):
        shapes = {"torch": [40, 50], "flax": [50, 40], "kernel": [5, 5, 3, 30], "bias": [40]}
        site = {
            name: numpyro.sample(name, dist.Normal(1.0, 0.1).expand(shape).to_event(len(shape)))
            for name, shape in shapes.items()
        }
        dimensions = ("NHWC", "HWIO", "NHWC")
        image = jnp.ones((1, 5, 5, 3))
        numpyro.deterministic("dense", x @ site["torch"].T + x @ site["flax"] + site["bias"])
        numpyro.deterministic(
            "convolved",
            jax.lax.conv_general_dilated(
                image, site["kernel"], (1, 1), "VALID", dimension_numbers=dimensions
            ),
        )

    params = by_numpy(lambda: start(VBPGuide(network), jnp.ones((2, 50))))()
    for name, fan_in in {"torch": 50, "flax": 50, "kernel": 75}.items():
        assert params[f"{name}_auto_loc"].std() == pytest.approx(fan_in**-0.5, rel=0.06)
    assert (params["bias_auto_loc"] == 0).all()
    log_variances = 2 * np.log(params["torch_auto_scale"])
    assert log_variances.mean() == pytest.approx(-9, abs=1e-4)
    assert log_variances.std() == pytest.approx(1e-3, rel=0.06)
