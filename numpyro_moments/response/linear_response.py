"""Linear response: moments of the posterior beyond those of a guide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from moment_calculus.hosts.predictions import checked_count
from moment_calculus.response.optimum import TOLERANCE
from moment_calculus.response.response import Response
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.response.problem import NumPyroProblem
from numpyro_moments.svi import SVI


def linear_response(
    model: Callable,
    guide: Callable,
    *data: Any,
    params: dict[str, Any],
    objective: ELBO | None = None,
    tolerance: float = TOLERANCE,
    float64: bool = False,
    **named: Any,
) -> LinearResponse:
    precision = Precision.of(params, float64)
    with precision():
        svi = SVI(model, guide, Adam(1.0), loss=objective)
    return LinearResponse(NumPyroProblem(svi, data, named, params, precision), tolerance)


class LinearResponse(Response):
    """Corrected posterior moments."""

    def sample(self, n: int, key: jax.Array) -> dict[str, jax.Array]:
        """Draw from the corrected posterior."""
        seed = np.asarray(
            jax.random.key_data(
                jax.random.wrap_key_data(key)
                if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
                else key
            )
        )
        return self._draws(np.random.default_rng(seed), checked_count(n))
