"""NumPyro's SVI with defaults for the optimiser and the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpyro.infer
from numpyro import handlers
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from numpyro_moments.evaluation.arguments import CALLS, checked_key
from numpyro_moments.evaluation.failure_causes import diagnose_errors, observe
from numpyro_moments.evaluation.uncertain_inputs import at_means
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
        CALLS.check_roles("SVI", {"model": model, "guide": guide})
        for argument in (*optim_and_loss, optim, loss):
            CALLS.check_optimiser(argument)
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

    def init(self, rng_key: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the initial state, as NumPyro's; observations are checked.

        Args:
            rng_key: random key.
            *args: arguments of model and guide.
            **kwargs: ``init_params``, and arguments of model and guide by name.

        Raises:
            TypeError: if ``rng_key`` is no key.
            UnsupportedMoments: if observations are not what the model's distributions take.
        """
        key, model = checked_key("rng_key", rng_key), vars(self)["model"]
        named = {n: part for n, part in kwargs.items() if n not in ("init_params", "static")}
        named |= self.static_kwargs
        recorded = handlers.trace(model)
        try:
            self.model = recorded
            with diagnose_errors(model, args, named):
                args, kwargs = at_means(args, kwargs)
                state = super().init(key, *args, **kwargs)
        finally:
            self.model = model
        observe(recorded.trace, model, args, named)
        return state

    def update(self, svi_state: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the next state and the loss, as NumPyro's.

        Args:
            svi_state: the state that ``init`` or the last update returned.
            *args: arguments of model and guide.
            **kwargs: keyword arguments of both.

        Raises:
            TypeError: if ``svi_state`` is no state.
        """
        if not hasattr(svi_state, "optim_state"):
            raise TypeError(
                f"update takes the state that init returned, got {type(svi_state).__name__}: call "
                "state = svi.init(key, x, y), then state, loss = svi.update(state, x, y)"
            )
        return super().update(svi_state, *args, **kwargs)


def _is_loss(argument: Any) -> bool:
    return isinstance(argument, ELBO) or hasattr(argument, "loss")
