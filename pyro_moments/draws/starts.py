"""Start chains at a fit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pyro.infer.autoguide.initialization import init_to_value

from moment_inference.optimisation import Fit, check_fit


def init_to_fit(fit: Fit) -> Callable:
    """Return the initialisation of chains at the posterior medians of a fit.

    Args:
        fit: what :func:`fit` or :func:`load` returned, with a guide that has medians:
            ``DVIGuide`` and its relatives, or one of Pyro's.

    Returns:
        An ``init_strategy`` of Pyro's ``NUTS`` and ``HMC``. Sites that the guide does not
        know start as by ``init_to_uniform``.

    Raises:
        TypeError: if it is no fit, or its guide has no medians.

    Example:
        >>> kernel = NUTS(model, init_strategy=init_to_fit(result))  # doctest: +SKIP
        >>> MCMC(kernel, num_samples=500, warmup_steps=100).run(x, y)  # doctest: +SKIP
    """
    check_fit(fit, "median")
    with fit.context(), torch.no_grad():
        medians = fit.guide.median()
    kind = torch.get_default_dtype()
    values = {name: value.detach().to(kind) for name, value in medians.items()}
    return init_to_value(values=values)
