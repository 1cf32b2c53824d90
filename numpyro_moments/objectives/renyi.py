"""The Rényi bound of Li and Turner, for guides with a density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpyro.infer

from moment_calculus.hosts.docstrings import documented
from moment_calculus.numerics.rulebook import check_draws
from moment_calculus.objectives.data import OF_GLOBAL_SITES
from moment_calculus.objectives.docstrings import RENYI
from moment_calculus.objectives.options import check_drawn, check_order, warn_single
from numpyro_moments.sites.binding import bind


@documented("NumPyro", objective=RENYI)
class RenyiELBO(numpyro.infer.RenyiELBO):
    """Rényi bound (1/(1 − α)) log E_q[(p(y, θ) / q(θ))^(1 − α)] of the log evidence.

    {objective}

    Example:
        >>> bound = RenyiELBO(alpha=0.5, num_particles=10)
    """

    def __init__(
        self,
        alpha: float = 0.0,
        *,
        num_particles: int = 2,
        propagation: str = "sampled",
        **options: Any,
    ) -> None:
        alpha = check_order(alpha)
        check_drawn(propagation, type(self).__name__)
        check_draws((), num_particles)
        warn_single(alpha, num_particles)
        super().__init__(alpha=alpha, num_particles=num_particles, **options)

    def loss(
        self,
        rng_key: Any,
        param_map: dict,
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """The negative bound.

        Args:
            rng_key: for what is drawn.
            param_map: values of the ``param`` sites by name.
            model: NumPyro model.
            guide: NumPyro guide; one without a model is bound to ``model``.
            *args: passed to both.
            **kwargs: passed to both.
        """
        bind(guide, model)
        try:
            return super().loss(rng_key, param_map, model, guide, *args, **kwargs)
        except ValueError as error:
            if "only supports subsampling" not in str(error):
                raise
            raise ValueError(f"{error} The {OF_GLOBAL_SITES}") from None
