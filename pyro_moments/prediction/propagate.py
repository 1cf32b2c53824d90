"""Moments of any function or module for uncertain inputs: no model, no guide."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from moment_calculus.hosts.docstrings import PROPAGATION, documented
from moment_calculus.hosts.moments import Moments, as_moments, as_value
from moment_calculus.hosts.wording import drawn_by_function
from moment_calculus.numerics.rulebook import RuleBook
from moment_calculus.rulebooks import propagation_of
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.sites.draws import Draws, watched


@documented("Pyro", rest=PROPAGATION)
def propagate(
    fn: Callable, *inputs: Any, rules: str | RuleBook = "exact", covariance: str = "diagonal"
) -> Any:
    """Propagate means and variances through a function or a module of tensors.

    Args:
        fn: function or ``nn.Module`` of the inputs, made of supported operations.
        *inputs: :class:`Moments`, or certain tensors and other arguments.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, or one of your own.
        covariance: ``"diagonal"`` or ``"full"``.

    Returns:
        What ``fn`` returns, every tensor replaced by its :class:`Moments`; tuples, lists and
        dicts keep their form.

    {rest}

    Example:
        >>> import torch
        >>> noisy = Moments(torch.zeros(3), variance=torch.ones(3))
        >>> round(propagate(torch.relu, noisy).mean[0].item(), 4)
        0.3989
    """
    propagation = propagation_of(covariance, rules)
    values = [
        MomentTensor(as_value(argument, f"input {place}", propagation))
        if isinstance(argument, Moments)
        else argument
        for place, argument in enumerate(inputs)
    ]
    result = watched(Draws(), partial(fn, *values), propagation, fn, drawn_by_function)
    with full_precision():
        return _results(result)


def _results(result: Any) -> Any:
    if isinstance(result, MomentTensor):
        return as_moments(result.value)
    if isinstance(result, torch.Tensor):
        return as_moments(result)
    if isinstance(result, tuple | list):
        return type(result)(map(_results, result))
    if isinstance(result, dict):
        return {key: _results(item) for key, item in result.items()}
    return result
