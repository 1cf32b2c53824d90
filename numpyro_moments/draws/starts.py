"""Start chains at a fit."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from numpyro.infer import init_to_value

from moment_inference.optimisation import Fit, check_fit


def init_to_fit(fit: Fit) -> Callable:
    """Return the initialisation of chains at the posterior medians of a fit.

    Args:
        fit: what :func:`fit` or :func:`load` returned, with a guide that has medians:
            ``DVIGuide`` and its relatives, or one of NumPyro's.

    Returns:
        An ``init_strategy`` of NumPyro's ``NUTS`` and ``HMC``. Sites that the guide does
        not know start as by ``init_to_uniform``.

    Raises:
        TypeError: if it is no fit, or its guide has no medians.

    Example:
        >>> kernel = NUTS(model, init_strategy=init_to_fit(result))  # doctest: +SKIP
        >>> MCMC(kernel, num_warmup=100, num_samples=500).run(key, x, y)  # doctest: +SKIP
    """
    check_fit(fit, "median")
    medians = fit.guide.median(fit.params)  # of a fit in double precision doubles
    return init_to_value(values={name: jnp.asarray(np.asarray(v)) for name, v in medians.items()})
