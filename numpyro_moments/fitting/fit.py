"""One verb that trains a guide."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer.elbo import ELBO
from numpyro.optim import Adam

from moment_calculus.hosts.docstrings import FIT_ARGUMENTS, FIT_ERRORS, documented
from moment_calculus.optimisation.minimisation import METHODS
from moment_calculus.optimisation.outcome import Fit, Outcome, check_options
from numpyro_moments.fitting.objective import FlatLoss
from numpyro_moments.svi import SVI


@documented("NumPyro", arguments=FIT_ARGUMENTS, errors=FIT_ERRORS)
def fit(
    model: Callable,
    guide: Callable,
    *data: Any,
    objective: ELBO | None = None,
    method: str = "adam",
    steps: int | None = None,
    tolerance: float | None = None,
    learning_rate: float = 1e-2,
    float64: bool = False,
    seed: int = 0,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO.

    {arguments}
        seed: of the random key, for initial locations and whatever is drawn.
        **named: arguments of model and guide by name.

    Returns:
        The trained parameters, the losses and why it stopped; ``params`` are those that
        ``predict`` and NumPyro's ``Predictive`` take.

    {errors}

    Example:
        >>> fit(model, DVIGuide(), x, y, method="newton")  # doctest: +SKIP
    """
    check_options(method, METHODS, steps)
    with jax.enable_x64(True) if float64 else contextlib.nullcontext():
        data, named = _of_jax(data), _of_jax(named)
        clock = time.perf_counter()
        svi = SVI(model, guide, Adam(learning_rate), loss=objective)
        key, start = jax.random.split(jax.random.key(seed))
        state = svi.init(start, *data, **named)
        if method == "adam":
            return _trained(svi, state, data, named, steps or 2000, clock)
        if state.mutable_state is not None:
            raise ValueError(
                "mutable state (batch statistics) changes the loss from step to step: use "
                "method='adam', or evaluate the module with its running averages"
            )
        return _minimised(FlatLoss(svi, key, data, named), state, method, steps, tolerance, clock)


def _of_jax(data: Any) -> Any:
    """NumPy's arrays as JAX's: of NumPy's, JAX mixes up traces of single and double precision."""
    return jax.tree.map(
        lambda part: jnp.asarray(part) if isinstance(part, np.ndarray) else part, data
    )


def _minimised(
    loss: FlatLoss,
    state: Any,
    method: str,
    steps: int | None,
    tolerance: float | None,
    clock: float,
) -> Fit:
    flat, unravel = loss.starting(state)
    loss.check_deterministic(unravel(flat))
    objective, start = loss.objective(flat, unravel), np.asarray(flat, np.float64)
    if start.size:
        objective.value_and_slope(start)  # compiles it
    prepared = time.perf_counter()
    found = METHODS[method](objective, start, steps, tolerance)
    params = loss.svi.constrain_fn(unravel(jnp.asarray(found.place, flat.dtype)))
    return found.fit(loss.svi.guide, params, clock, prepared)


def _trained(
    svi: SVI, state: Any, data: tuple, named: dict[str, Any], steps: int, clock: float
) -> Fit:
    """As many steps of Adam, in one compiled loop."""

    def update(state: Any, _: None) -> tuple[Any, jax.Array]:
        return svi.update(state, *data, **named)

    run = jax.jit(lambda state: jax.lax.scan(update, state, None, length=steps))
    compiled = run.lower(state).compile()
    prepared = time.perf_counter()
    state, found = compiled(state)
    last = float(svi.evaluate(state, *data, **named))
    place = np.asarray(ravel_pytree(svi.optim.get_params(state.optim_state))[0])
    losses = [*np.asarray(found, np.float64).tolist(), last]
    outcome = Outcome(place, losses, reason=f"ran {steps} steps")
    return outcome.fit(svi.guide, svi.get_params(state), clock, prepared)
