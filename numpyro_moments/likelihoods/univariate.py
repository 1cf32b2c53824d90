"""Moments of any univariate distribution, by quadrature over its random parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from moment_calculus import likelihoods
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.likelihoods.families import predictive_remedy
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
from numpyro_moments.likelihoods.structure import (
    constrained_values,
    has_moments,
    placeholder,
    replaced,
    restored,
)
from numpyro_moments.rules.table import is_random

_BINARY = dist.BernoulliLogits, dist.BernoulliProbs
_TRIALS = *_BINARY, dist.BinomialLogits, dist.BinomialProbs


def expected(fn: Any, value: Any) -> jax.Array:
    """Return E_q[log p(value)] by quadrature on the distribution's own ``log_prob``.

    For the error see :func:`moment_calculus.likelihoods.expectation`.
    """
    # Nodes are float64 if JAX allows it. In float32 the error is that of NumPyro's
    # density: 1e-6, relative or absolute, measured over ten families.
    _, arguments = _as_function(fn)
    return likelihoods.expectation(
        _density(fn, value), _double(value), *arguments, knots=_knots(fn, value)
    )


def predictive(fn: Any) -> tuple[jax.Array, jax.Array, jax.Array, Callable]:
    """Return predictive mean, epistemic and aleatoric variance, and log predictive density."""
    if not has_moments(fn):
        fn = restored(fn)
        return fn.mean, jnp.zeros_like(fn.mean), fn.variance, fn.log_prob
    _, arguments = _as_function(fn)
    try:
        moments = likelihoods.moments_of_observation(
            _attribute(fn, "mean"), _attribute(fn, "variance"), *arguments
        )
    except NotImplementedError:
        raise UnsupportedMoments(
            f"NumPyro knows no mean and variance of a {type(fn).__name__}",
            sites=frozenset().union(*(argument.sites for argument in arguments)),
            remedy=predictive_remedy("NumPyro"),
        ) from None
    return *moments, _log_predictive(fn)


def tempered(fn: Any, value: Any, power: Any = 1.0) -> jax.Array:
    """Return (1/a) log E_q[p(value)ᵃ] by quadrature; a = 1 is the log predictive density.

    For the error see :func:`moment_calculus.likelihoods.log_expectation`.
    """
    distribution_at, arguments = _as_function(fn)
    value = value if is_random(value) else jnp.asarray(value)
    shape = np.broadcast_shapes(
        value.shape, jnp.shape(power), *(argument.shape for argument in arguments)
    )
    return likelihoods.log_expectation(
        _over_nodes(lambda value, *points: _log_prob(distribution_at(*points), value), shape),
        _double(value),
        *arguments,
        knots=_knots(fn, value),
        power=power,
    )


def _log_predictive(fn: Any) -> Callable[[jax.Array], jax.Array]:
    """Return the function from observations to their log predictive density."""
    return partial(tempered, fn) if has_moments(fn) else restored(fn).log_prob


def _density(fn: Any, value: jax.Array) -> Callable[..., jax.Array]:
    """Return the log density of values as a function of the random parameters."""
    return _of_values(fn, value, _log_prob)


def _log_prob(certain: Any, value: jax.Array) -> jax.Array:
    return fill_outside_support(
        certain.support, value, certain.log_prob(value), -math.inf, -math.inf
    )


def _cdf(certain: Any, value: jax.Array) -> jax.Array:
    return fill_outside_support(certain.support, value, certain.cdf(value), 0.0, 1.0)


def _of_values(
    fn: Any, value: jax.Array, asked: Callable[[Any, jax.Array], jax.Array]
) -> Callable[..., jax.Array]:
    """Return a function of values by the random parameters, such as the log density."""
    distribution_at, arguments = _as_function(fn)
    if not arguments:
        return lambda value: asked(distribution_at(), value)
    shape = np.broadcast_shapes(value.shape, *(argument.shape for argument in arguments))
    return _over_nodes(lambda value, *points: asked(distribution_at(*points), value), shape)


def _attribute(fn: Any, name: str) -> Callable[..., jax.Array]:
    """Return the distribution's mean, or the like, as a function of its random parameters."""
    return _at_points(fn, lambda certain: getattr(certain, name))


def _at_points(fn: Any, asked: Callable[[Any], jax.Array]) -> Callable[..., jax.Array]:
    """Return what ``asked`` gives for the distribution, as a function of its random parameters."""
    distribution_at, arguments = _as_function(fn)
    shapes = [argument.shape for argument in arguments] or [fn.batch_shape]
    return _over_nodes(
        lambda *points: asked(distribution_at(*points)), np.broadcast_shapes(*shapes)
    )


def marginal(name: str, fn: Any) -> Marginal:
    """Return the marginal of a univariate prediction: of counts, or continuous."""
    family, support = type(fn).__name__, placeholder(fn).support
    low, high = support_bounds(support, is_random)
    _, arguments = _as_function(fn)
    mean_quantile = partial(likelihoods.quantile_of_mean, _attribute(fn, "mean"), arguments)
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
    return (BinaryMarginal if is_binary else CountMarginal)(
        name,
        family,
        _log_predictive(fn),
        partial(_expected_surprisal, fn),
        (low, 1 if is_binary else high),
        partial(_expected_success, fn) if isinstance(fn, _TRIALS) else None,
        len(arguments),
        mean_quantile=mean_quantile,
    )


def _entropy(name: str, fn: Any) -> jax.Array:
    """Return E_q of the distribution's own entropy."""
    _, arguments = _as_function(fn)
    try:
        return likelihoods.expectation(_at_points(fn, lambda fn: fn.entropy()), *arguments)
    except NotImplementedError:
        raise no_entropy_given(name, type(fn).__name__) from None


def _expected_surprisal(fn: Any, value: jax.Array) -> jax.Array:
    """Return E_q[−p log p] of the probabilities of counts."""
    _, arguments = _as_function(fn)
    return likelihoods.expected_surprisal(_density(fn, value), value, *arguments)


def _expected_success(fn: Any) -> jax.Array:
    """Return E_q of the probability of a success."""
    _, arguments = _as_function(fn)
    return likelihoods.expectation(_attribute(fn, "probs"), *arguments)


def _cumulative(fn: Any, value: jax.Array) -> jax.Array:
    """Return P(y ≤ value), by the distribution's own function."""
    _, arguments = _as_function(fn)
    cumulative = _of_values(fn, value, _cdf)
    return likelihoods.expected_probability(cumulative, value, *arguments, knots=_knots(fn, value))


def draw_observations(fn: Any, key: jax.Array, count: int, shape: tuple[int, ...]) -> jax.Array:
    """Draw parameters, and an observation for each: [count, *shape]."""
    distribution_at, arguments = _as_function(fn)
    keys = iter(jax.random.split(key, 3))  # of at most two Gaussians, and of the observation

    def noise(shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(next(keys), shape)

    points = likelihoods.draw_arguments(arguments, count, noise)

    def observation(key: jax.Array, *points: jax.Array) -> jax.Array:
        return distribution_at(*points).expand(shape).sample(key)

    return jax.vmap(observation)(jax.random.split(next(keys), count), *points)


def _over_nodes(function: Callable[..., Any], shape: tuple[int, ...]) -> Callable[..., jax.Array]:
    """Return a function of arrays that is mapped over the axes of nodes before a shape."""

    # The distribution gets one node at a time, and so the shapes that it was made for.
    def mapped(*arguments: Any) -> jax.Array:
        if not arguments:
            return jnp.broadcast_to(function(), shape)
        wide = np.broadcast_shapes(shape, *(jnp.shape(argument) for argument in arguments))
        nodes = wide[: len(wide) - len(shape)]
        flat = [jnp.reshape(jnp.broadcast_to(a, wide), (-1, *shape)) for a in arguments]
        found = jax.vmap(function)(*flat)
        return jnp.reshape(jnp.broadcast_to(found, flat[0].shape), (*nodes, *shape))

    return mapped


def _as_function(fn: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return the distribution as a function of its random parameters, and their values."""
    arguments, distribution_at = replaced(fn)
    check_univariate(fn, arguments)
    check_unconstrained(
        fn, constrained_values(fn), _is_real, link_names="jnp.exp(h) or jax.nn.sigmoid(h)"
    )
    return distribution_at, arguments


def _is_real(constraint: Any) -> bool:
    if constraints.is_dependent(constraint) or constraint.event_dim:
        return True
    if any(hasattr(bound, "shape") for bound in jax.tree.leaves(constraint, is_leaf=is_random)):
        return True
    return all(bool(constraint(point)) for point in (-1.5, 1.5))


def _double(value: Any) -> Any:
    if is_random(value) or not jnp.issubdtype(value.dtype, jnp.floating):
        return value
    return value.astype(jax.dtypes.canonicalize_dtype(np.float64))


def _knots(fn: Any, value: Any) -> tuple[Any, ...]:
    """Return the observation, where the density of a residual bends, and zero, where links do."""
    if is_random(value) or not jnp.issubdtype(value.dtype, jnp.floating):
        return (0.0,)
    return (0.0, _double(value)) if hasattr(fn, "loc") else (0.0,)
