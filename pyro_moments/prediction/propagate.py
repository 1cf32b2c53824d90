"""Propagate moments of uncertain inputs through any function, without model or guide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from moment_calculus import errors
from moment_calculus.numerics import one_thread_at_a_time
from moment_calculus.predictions import (
    Moments,
    as_value,
    draws_from,
    moments_of_draws,
    moments_of_value,
)
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import RuleBook
from moment_inference import moments_with_attribution
from moment_inference.objectives import choices
from pyro_moments._host import tree_flatten, tree_map, tree_unflatten
from pyro_moments.evaluation.failure_causes import check_function
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.evaluation.uncertain_inputs import is_moments, moments_in_torch
from pyro_moments.particles.noise import OutOfPlace
from pyro_moments.sites.random_watch import GeneratorWatch, run_watched


@one_thread_at_a_time
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
        *inputs: :class:`Moments`, pytrees of them, or certain tensors and other arguments.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, ``"vbp"``, ``"logistic"``,
            or your own.
        covariance: ``"diagonal"``, ``"full"`` or ``"backward"``.
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``.
        num_particles: number of draws of the inputs with ``propagation="sampled"``.

    Returns:
        What ``fn`` returns, every tensor replaced by its :class:`Moments`; pytrees keep
        their form.

    Different inputs are independent of each other; within one input the components have
    the covariance given, or are independent.

    ``propagation="sampled"`` draws the inputs ``num_particles`` times from Gaussians with
    these moments, and gives moments over what ``fn`` makes of them: any operation will
    do, and the error is a Monte Carlo one. ``propagation="mean"`` evaluates ``fn`` at the
    means, with variance zero.

    Raises:
        ValueError: if an option is unknown, or there are fewer than two particles to
            sample.
        UnsupportedMoments: if ``fn`` uses an operation without a rule, or draws what cannot be
            marginalised (analytic).

    Source: Shekhovtsov et al. 2018.

    Example:
        >>> import torch
        >>> noisy = Moments(torch.zeros(3), variance=torch.ones(3))
        >>> round(propagate(torch.relu, noisy).mean[0].item(), 4)
        0.3989
    """
    choices.check_draws_of_inputs(propagation, num_particles)
    how = propagation_of(covariance, rules)
    leaves, structure = tree_flatten(inputs, is_moments)
    indices = [index for index, leaf in enumerate(leaves) if is_moments(leaf)]
    uncertain = [moments_in_torch(leaves[index]) for index in indices]
    check_function(fn, uncertain)

    def program(*tensors: torch.Tensor) -> Any:
        filled = {**dict(enumerate(leaves)), **dict(zip(indices, tensors, strict=True))}
        return fn(*tree_unflatten([*filled.values()], structure))

    if propagation == "sampled":
        results = _at_draws(program, uncertain, num_particles)
        return tree_map(lambda part: moments_of_draws(part, how.has_full_covariance), results)
    values = [moments.mean for moments in uncertain]
    if propagation == "analytic":
        names = _names(inputs)
        parts = zip(indices, uncertain, strict=True)
        values = [MomentTensor(as_value(moments, names[index], how)) for index, moments in parts]
    result = run_watched(GeneratorWatch(), partial(program, *values), how, fn, _randomness)
    with full_precision():
        return tree_map(_result, result)


def _at_draws(program: Callable, uncertain: Sequence[Moments], count: int) -> Any:
    """Return the results at Gaussian draws of the inputs, [draws, ...] each."""
    noise = (torch.randn(count, *part.mean.shape, device="cpu").to(part.mean) for part in uncertain)
    draws = tuple(draws_from(*pair) for pair in zip(uncertain, noise, strict=True))

    def once(_: torch.Tensor, *tensors: torch.Tensor) -> Any:
        with OutOfPlace():
            return program(*tensors)

    return torch.vmap(once, randomness="different")(torch.arange(count, device="cpu"), *draws)


def _names(inputs: Sequence[Any]) -> list[str]:
    """Return a name for each leaf: its input, and its number in there."""
    names = []
    for input_index, argument in enumerate(inputs):
        count = len(tree_flatten(argument, is_moments)[0])
        inside = [f"input {input_index}, part {part}" for part in range(count)]
        names += [f"input {input_index}"] if isinstance(argument, Moments) else inside
    return names


def _result(result: Any) -> Any:
    if isinstance(result, MomentTensor):
        return moments_with_attribution(result.value)
    return moments_of_value(result) if isinstance(result, torch.Tensor) else result


_randomness = partial(
    errors.randomness_in_function,
    remedy="switch dropout and the like to evaluation (.eval()), or pass what is random as an "
    "argument: its Moments, or numbers drawn before",
)
