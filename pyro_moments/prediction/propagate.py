"""Propagate moments of uncertain inputs through any function, without model or guide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.objectives.options import check_draws_of_inputs
from moment_calculus.predictions.moments import (
    Moments,
    as_value,
    draws_from,
    moments_of_draws,
    moments_of_value,
)
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.propagation import Propagation, RuleBook
from pyro_moments._host import tree_map
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.particles.noise import OutOfPlace
from pyro_moments.sites.random_watch import GeneratorWatch, run_watched


def propagate(
    fn: Callable,
    *inputs: Any,
    rules: str | RuleBook = "exact",
    covariance: str = "diagonal",
    propagation: str = "analytic",
    num_particles: int = 1000,
) -> Any:
    """Propagate means and variances through a function or a module of tensors.

    Args:
        fn: function or ``nn.Module`` of the inputs, made of supported operations.
        *inputs: :class:`Moments`, or certain tensors and other arguments.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, or one of your own.
        covariance: ``"diagonal"`` or ``"full"``.
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``.
        num_particles: number of draws of the inputs with ``propagation="sampled"``.

    Returns:
        What ``fn`` returns, every tensor replaced by its :class:`Moments`; tuples, lists
        and dicts keep their form.

    Different inputs are independent of each other; within one input the components have
    the covariance given, or are independent.

    ``propagation="sampled"`` draws the inputs ``num_particles`` times from Gaussians with
    these moments, and gives moments over what ``fn`` makes of them: any operation will
    do, and the error is a Monte Carlo one. ``propagation="mean"`` evaluates ``fn`` at the
    means, with variance zero.

    Raises:
        ValueError: if an option is unknown, or there are fewer than two particles to
            sample.
        UnsupportedMoments: if ``fn`` uses an operation without a rule (analytic).

    Source: Shekhovtsov et al. 2018.

    Example:
        >>> import torch
        >>> noisy = Moments(torch.zeros(3), variance=torch.ones(3))
        >>> round(propagate(torch.relu, noisy).mean[0].item(), 4)
        0.3989
    """
    check_draws_of_inputs(propagation, num_particles)
    how = propagation_of(covariance, rules)
    if propagation == "sampled":
        return _sampled(fn, inputs, num_particles, how.full)
    values = [
        _value(argument, f"input {place}", how, propagation == "mean")
        if isinstance(argument, Moments)
        else argument
        for place, argument in enumerate(inputs)
    ]
    result = run_watched(GeneratorWatch(), partial(fn, *values), how, fn, _randomness)
    with full_precision():
        return _results(result)


def _value(moments: Moments, name: str, how: Propagation, is_mean: bool) -> torch.Tensor:
    return moments.mean if is_mean else MomentTensor(as_value(moments, name, how))


def _sampled(fn: Callable, inputs: Sequence[Any], count: int, full: bool) -> Any:
    """Return the moments of the results over draws of the inputs."""
    places = [place for place, part in enumerate(inputs) if isinstance(part, Moments)]
    noise = (torch.randn(count, *inputs[k].mean.shape).to(inputs[k].mean) for k in places)
    draws = tuple(draws_from(inputs[k], part) for k, part in zip(places, noise, strict=True))

    def once(_: torch.Tensor, *drawn: torch.Tensor) -> Any:
        filled = {**dict(enumerate(inputs)), **dict(zip(places, drawn, strict=True))}
        with OutOfPlace():
            return fn(*filled.values())

    moments = torch.vmap(once, randomness="different")(torch.arange(count), *draws)
    return tree_map(lambda part: moments_of_draws(part, full), moments)


def _results(result: Any) -> Any:
    if isinstance(result, MomentTensor):
        return moments_of_value(result.value)
    if isinstance(result, torch.Tensor):
        return moments_of_value(result)
    if isinstance(result, tuple | list):
        return type(result)(map(_results, result))
    if isinstance(result, dict):
        return {key: _results(item) for key, item in result.items()}
    return result


def _randomness(operation: str, location: str) -> UnsupportedMoments:
    """Return the error for a function that draws random numbers while moments propagate."""
    return UnsupportedMoments(
        "the function draws random numbers: the moments would be random, and nothing would say so",
        remedy="switch dropout and the like to evaluation (.eval()), or pass what is random as an "
        "argument: its Moments, or numbers drawn before",
        operation=operation,
        location=location,
    )
