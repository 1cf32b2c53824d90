"""Pyro's SVI with defaults for the optimiser and the loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyro.infer
from pyro.infer.elbo import ELBO
from pyro.optim import Adam, PyroOptim  # type: ignore[attr-defined]

from pyro_moments.evaluation.arguments import CALLS
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.sites.traces import bind

DEFAULT_LEARNING_RATE = 1e-2


class SVI(pyro.infer.SVI):
    """Pyro's SVI, with Adam and :class:`DeterministicELBO` as defaults.

    Both argument orders work: ``SVI(model, guide, loss)`` and Pyro's own
    ``SVI(model, guide, optim, loss)``.

    Args:
        model: Pyro model.
        guide: Pyro guide.
        *optim_and_loss: an optimiser and a loss, at most one each, in any order.
        optim: optimiser; by default Adam with learning rate 0.01.
        loss: an ELBO, or a callable as in Pyro; by default ``DeterministicELBO()``.
        **options: passed to :class:`pyro.infer.SVI`.

    Raises:
        TypeError: if an argument is neither an optimiser nor a loss, or is given twice.

    Example:
        >>> SVI(model, DVIGuide(), DeterministicELBO()).step(x, y)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Callable,
        guide: Callable,
        *optim_and_loss: Any,
        optim: PyroOptim | None = None,
        loss: ELBO | Callable | None = None,
        **options: Any,
    ) -> None:
        CALLS.check_roles("SVI", {"model": model, "guide": guide})
        for argument in (*optim_and_loss, optim, loss):
            if not inspect.isroutine(argument) or CALLS.makes_optimisers(argument):
                CALLS.check_optimiser(argument)
        for argument in optim_and_loss:
            if isinstance(argument, PyroOptim) and optim is None:
                optim = argument
            elif callable(argument) and not isinstance(argument, PyroOptim) and loss is None:
                loss = argument
            else:
                raise TypeError(
                    "SVI takes at most one optimiser of pyro.optim and one loss; "
                    f"{type(argument).__name__} was unexpected"
                )
        bind(guide, model)  # a DVIGuide() may have been made without a model
        optim = optim or Adam({"lr": DEFAULT_LEARNING_RATE})
        super().__init__(model, guide, optim, loss or DeterministicELBO(), **options)
