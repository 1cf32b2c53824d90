"""One verb that trains a guide."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pyro.optim import Adam  # type: ignore[attr-defined]

from moment_calculus.hosts.docstrings import FIT_ARGUMENTS, FIT_ERRORS, documented
from moment_calculus.optimisation.minimisation import METHODS
from moment_calculus.optimisation.outcome import Fit, Outcome, check_options
from pyro_moments.fitting.objective import flat_loss, make_doubles
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.sites.binding import bind
from pyro_moments.svi import SVI


@documented("Pyro", arguments=FIT_ARGUMENTS, errors=FIT_ERRORS)
def fit(
    model: Callable,
    guide: Callable,
    *data: Any,
    objective: Any = None,
    method: str = "adam",
    steps: int | None = None,
    tolerance: float | None = None,
    learning_rate: float = 1e-2,
    float64: bool = False,
    **named: Any,
) -> Fit:
    """Train a guide by a closed-form ELBO, from where its parameters are.

    {arguments}
        **named: arguments of model and guide by name.

    Returns:
        The guide, whose parameters are trained in place, the losses and why it stopped.

    {errors}

    Example:
        >>> fit(model, DVIGuide(), x, y, method="newton")  # doctest: +SKIP
    """
    check_options(method, METHODS, steps)
    clock = time.perf_counter()
    objective = objective or DeterministicELBO()
    with _double() if float64 else contextlib.nullcontext():
        bind(guide, model)
        if float64:
            data, named = _doubled(data), _doubled(named)
            make_doubles(lambda: objective.differentiable_loss(model, guide, *data, **named))
        loss = flat_loss(objective, model, guide, data, named)
        if method == "adam":
            svi = SVI(model, guide, Adam({"lr": learning_rate}), objective)
            prepared = time.perf_counter()
            losses = [svi.step(*data, **named) for _ in range(steps or 2000)]
            losses.append(svi.evaluate_loss(*data, **named))
            found = Outcome(loss.place(), losses, reason=f"ran {len(losses) - 1} steps")
        else:
            loss.check_deterministic()
            problem, start = loss.objective(), loss.place()
            prepared = time.perf_counter()
            found = METHODS[method](problem, start, steps, tolerance)
            loss.move(found.place)
        params = {name: value.detach().clone() for name, value in loss.values().items()}
        return found.fit(guide, params, clock, prepared)


@contextlib.contextmanager
def _double() -> Iterator[None]:
    """New tensors are doubles."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _doubled(data: Any) -> Any:
    """Tensors of single precision as doubles, also inside tuples and dictionaries."""
    if isinstance(data, dict):
        return {name: _doubled(part) for name, part in data.items()}
    if isinstance(data, tuple | list):
        return type(data)(_doubled(part) for part in data)
    if isinstance(data, torch.Tensor) and data.is_floating_point():
        return data.double()
    return data
