"""SVI with a default optimiser, so that the literal line runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpyro.infer
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from moment_calculus.hosts.docstrings import BOTH_ORDERS, ORDER_ERRORS, documented
from numpyro_moments.objectives.elbo import DeterministicELBO
from numpyro_moments.sites.binding import bind

DEFAULT_LEARNING_RATE = 1e-2


@documented("NumPyro", orders=BOTH_ORDERS, errors=ORDER_ERRORS)
class SVI(numpyro.infer.SVI):
    """NumPyro's SVI, with Adam and :class:`DeterministicELBO` as defaults.

    {orders}
        optim: optimiser, of NumPyro, JAX or Optax; by default Adam with learning rate 0.01.
        loss: an ELBO; by default ``DeterministicELBO()``.
        **static_kwargs: passed to :class:`numpyro.infer.SVI`: arguments of model and guide that
            stay constant.

    {errors}

    Example:
        >>> SVI(model, DVIGuide(), DeterministicELBO()).init(key, x)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Callable,
        guide: Callable,
        *optim_and_loss: Any,
        optim: Any = None,
        loss: ELBO | None = None,
        **static_kwargs: Any,
    ) -> None:
        for argument in optim_and_loss:
            if _is_loss(argument) and loss is None:
                loss = argument
            elif not _is_loss(argument) and optim is None and argument is not None:
                optim = argument
            else:
                raise TypeError(
                    f"SVI got {type(argument).__name__} where it takes an optimiser and a loss, "
                    "each once"
                )
        bind(guide, model)
        optim = Adam(DEFAULT_LEARNING_RATE) if optim is None else optim
        super().__init__(model, guide, optim, loss or DeterministicELBO(), **static_kwargs)


def _is_loss(argument: Any) -> bool:
    return isinstance(argument, ELBO) or hasattr(argument, "loss")
