"""NumPyro's SVI with defaults for the optimiser and the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpyro.infer
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from numpyro_moments.objectives.elbo import DeterministicELBO
from numpyro_moments.sites.traces import bind

DEFAULT_LEARNING_RATE = 1e-2


class SVI(numpyro.infer.SVI):
    """NumPyro's SVI, with Adam and :class:`DeterministicELBO` as defaults.

    Both argument orders work: ``SVI(model, guide, loss)`` and NumPyro's own
    ``SVI(model, guide, optim, loss)``.

    Args:
        model: NumPyro model.
        guide: NumPyro guide.
        *optim_and_loss: an optimiser and a loss, at most one each, in any order.
        optim: optimiser, of NumPyro, JAX or Optax; by default Adam with learning rate
            0.01.
        loss: an ELBO; by default ``DeterministicELBO()``.
        **static_kwargs: passed to :class:`numpyro.infer.SVI`: arguments of model and
            guide that stay constant.

    Raises:
        TypeError: if an argument is neither an optimiser nor a loss, or is given twice.

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
                    "SVI takes at most one optimiser and one loss; "
                    f"{type(argument).__name__} was unexpected"
                )
        bind(guide, model)  # a DVIGuide() may have been made without a model
        optim = Adam(DEFAULT_LEARNING_RATE) if optim is None else optim
        super().__init__(model, guide, optim, loss or DeterministicELBO(), **static_kwargs)


def _is_loss(argument: Any) -> bool:
    return isinstance(argument, ELBO) or hasattr(argument, "loss")
