"""Moments of any univariate distribution, by quadrature over its random parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution
from torch.distributions import constraints

from moment_calculus import likelihoods
from moment_calculus.likelihoods.univariate import (
    check_unconstrained,
    check_univariate,
    fill_outside_support,
    support_bounds,
)
from moment_calculus.predictions.marginals import (
    BinaryMarginal,
    ContinuousMarginal,
    CountMarginal,
    Marginal,
    no_entropy_given,
)
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods.structure import (
    constrained_tensors,
    has_moments,
    random_tensors,
    with_plain_tensors,
)

_BINARY = torch.distributions.Bernoulli


def expected(fn: Any, value: Any) -> torch.Tensor:
    """Return E_q[log p(value)] by quadrature on the distribution's own ``log_prob``.

    For the error see :func:`moment_calculus.likelihoods.expectation`.
    """
    distribution_at, arguments = _as_function(fn)
    knots = _knots(fn, value)
    return likelihoods.expectation(
        _density(distribution_at), _double(value), *arguments, knots=knots
    )


def predictive(fn: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Callable]:
    """Return predictive mean, epistemic and aleatoric variance, and log predictive density."""
    if not has_moments(fn):
        return fn.mean, torch.zeros_like(fn.mean), fn.variance, fn.log_prob
    distribution_at, arguments = _as_function(fn)
    moments = likelihoods.moments_of_observation(
        _mean(distribution_at), lambda *points: distribution_at(*points).variance, *arguments
    )
    return *moments, _log_predictive(fn)


def tempered(fn: Any, value: Any, power: Any = 1.0) -> torch.Tensor:
    """Return (1/a) log E_q[p(value)ᵃ] by quadrature; a = 1 is the log predictive density.

    For the error see :func:`moment_calculus.likelihoods.log_expectation`.
    """
    distribution_at, arguments = _as_function(fn)
    return likelihoods.log_expectation(
        _density(distribution_at),
        _double(value),
        *arguments,
        knots=_knots(fn, value),
        power=_double(power),
    )


def _log_predictive(fn: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function from observations to their log predictive density."""
    return partial(tempered, fn) if has_moments(fn) else fn.log_prob


def marginal(name: str, fn: Any) -> Marginal:
    """Return the marginal of a univariate prediction: of counts, or continuous."""
    family, support = type(fn).__name__, fn.support
    distribution_at, arguments = _as_function(fn)
    low, high = support_bounds(support, lambda end: isinstance(end, MomentTensor))
    mean_quantile = partial(likelihoods.quantile_of_mean, _mean(distribution_at), arguments)
    if not support.is_discrete:
        return ContinuousMarginal(
            name,
            family,
            partial(_cumulative, fn),
            _log_predictive(fn),
            (low, high),
            expected_entropy=partial(_entropy, name, fn),
            mean_quantile=mean_quantile,
        )
    is_binary = isinstance(fn, _BINARY)
    trials = is_binary or isinstance(fn, torch.distributions.Binomial)
    return (BinaryMarginal if is_binary else CountMarginal)(
        name,
        family,
        _log_predictive(fn),
        partial(_expected_surprisal, fn),
        (low, 1 if is_binary else high),
        partial(_expected_success, fn) if trials else None,
        len(arguments),
        mean_quantile=mean_quantile,
    )


def _mean(distribution_at: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    return lambda *points: distribution_at(*points).mean


def _entropy(name: str, fn: Any) -> torch.Tensor:
    """Return E_q of the distribution's own entropy."""
    distribution_at, arguments = _as_function(fn)
    try:
        return likelihoods.expectation(
            lambda *points: distribution_at(*points).entropy(), *arguments
        )
    except NotImplementedError:
        raise no_entropy_given(name, type(fn).__name__) from None


def _expected_surprisal(fn: Any, value: torch.Tensor) -> torch.Tensor:
    """Return E_q[−p log p] of the probabilities of counts."""
    distribution_at, arguments = _as_function(fn)
    return likelihoods.expected_surprisal(_density(distribution_at), value, *arguments)


def _expected_success(fn: Any) -> torch.Tensor:
    """Return E_q of the probability of a success."""
    distribution_at, arguments = _as_function(fn)
    return likelihoods.expectation(lambda *points: distribution_at(*points).probs, *arguments)


def _cumulative(fn: Any, value: torch.Tensor) -> torch.Tensor:
    """Return P(y ≤ value), by the distribution's own function."""
    distribution_at, arguments = _as_function(fn)

    def cumulative(value: torch.Tensor, *points: torch.Tensor) -> torch.Tensor:
        certain = distribution_at(*points)
        return fill_outside_support(certain.support, value, certain.cdf(value), 0.0, 1.0)

    return likelihoods.expected_probability(cumulative, value, *arguments, knots=_knots(fn, value))


def draw_observations(fn: Any, count: int, shape: torch.Size) -> torch.Tensor:
    """Draw parameters, and an observation for each: [count, *shape]."""
    distribution_at, arguments = _as_function(fn)
    device = random_tensors(fn)[0].device

    def noise(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.double, device=device)

    def aligned(point: torch.Tensor) -> torch.Tensor:
        axes = (1,) * (len(shape) - point.dim() + 1)
        return point.reshape(count, *axes, *point.shape[1:])

    distribution = distribution_at(
        *map(aligned, likelihoods.draw_arguments(arguments, count, noise))
    )
    return ExpandedDistribution(distribution, torch.Size((count, *shape))).sample()


def _as_function(fn: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return the distribution as a function of its random parameters, and their values."""
    tensors = random_tensors(fn)
    arguments = [unwrap(tensor) for tensor in tensors]
    check_univariate(fn, arguments)
    parameters = ((name, unwrap(tensor), kind) for name, tensor, kind in constrained_tensors(fn))
    check_unconstrained(fn, parameters, _is_real, link_names="torch.exp(h) or torch.sigmoid(h)")

    def distribution_at(*points: torch.Tensor) -> Any:
        shape = torch.broadcast_shapes(fn.batch_shape, *(point.shape for point in points))
        table = {id(tensor): point for tensor, point in zip(tensors, points, strict=True)}
        return with_plain_tensors(fn, table, shape)

    return distribution_at, arguments


def _is_real(constraint: Any) -> bool:
    bounds = vars(constraint).values()
    if constraints.is_dependent(constraint) or any(isinstance(b, torch.Tensor) for b in bounds):
        return True
    return all(bool(constraint.check(torch.tensor(point))) for point in (-1.5, 1.5))


def _density(distribution_at: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    def density(value: Any, *points: torch.Tensor) -> torch.Tensor:
        certain = distribution_at(*points)
        return fill_outside_support(
            certain.support, value, certain.log_prob(value), -math.inf, -math.inf
        )

    return density


def _double(value: Any) -> Any:
    plain = unwrap(value)
    floating = isinstance(plain, torch.Tensor) and plain.is_floating_point()
    return plain.double() if floating else plain


def _knots(fn: Any, value: Any) -> tuple[Any, ...]:
    """Return the observation, where the density of a residual bends, and zero, where links do."""
    if isinstance(value, MomentTensor) or not value.is_floating_point():
        return (0.0,)
    return (0.0, _double(value)) if hasattr(fn, "loc") else (0.0,)
