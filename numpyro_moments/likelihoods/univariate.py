"""Any univariate distribution, by quadrature over the Gaussians behind its random parameters."""

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
from moment_calculus.hosts.docstrings import QUADRATURE_ERRORS, documented
from moment_calculus.hosts.predictions.discrete import BinaryMarginal, CountMarginal
from moment_calculus.hosts.predictions.marginals import ContinuousMarginal, Marginal
from moment_calculus.hosts.predictions.wording import no_entropy_given, predictive_remedy
from moment_calculus.hosts.univariate import bounds_of, check_confined, check_univariate, within
from moment_calculus.refusals.errors import UnsupportedMoments
from numpyro_moments.likelihoods.derived import restored
from numpyro_moments.likelihoods.structure import (
    constrained_values,
    has_moments,
    is_random,
    placeholder,
    replaced,
)

_BINARY = dist.BernoulliLogits, dist.BernoulliProbs
_TRIALS = *_BINARY, dist.BinomialLogits, dist.BinomialProbs


@documented("NumPyro", errors=QUADRATURE_ERRORS)
def expected(fn: Any, value: Any) -> jax.Array:
    """E_q[log p(value)] by quadrature on the distribution's own ``log_prob``.

    For the error, which is small over one Gaussian and may not be over two, see
    :func:`moment_calculus.likelihoods.expectation`. The nodes are in double precision where
    ``jax_enable_x64`` allows it; otherwise the error is that of the host's own density in single
    precision (measured over ten families: 1e-6, relative or absolute).

    Args:
        fn: univariate distribution.
        value: observation or value.

    {errors}
    """
    _, arguments = _given(fn)
    return likelihoods.expectation(
        _density(fn, value), _double(value), *arguments, knots=_knots(fn, value)
    )


def predictive(fn: Any) -> tuple[jax.Array, jax.Array, jax.Array, Callable]:
    """Predictive mean, epistemic and aleatoric variance, and log predictive density.

    Args:
        fn: univariate distribution.

    Raises:
        UnsupportedMoments: as :func:`expected`; or if the host knows no mean and variance of the
            distribution.
    """
    if not has_moments(fn):
        fn = restored(fn)
        return fn.mean, jnp.zeros_like(fn.mean), fn.variance, fn.log_prob
    _, arguments = _given(fn)
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


@documented("NumPyro", errors=QUADRATURE_ERRORS)
def tempered(fn: Any, value: Any, power: Any = 1.0) -> jax.Array:
    """(1/a) log E_q[p(value)ᵃ] by quadrature: the log predictive density where a is one.

    For the error see :func:`moment_calculus.likelihoods.log_expectation`, and for the precision
    :func:`expected`.

    Args:
        fn: univariate distribution.
        value: observation or value.
        power: a, positive number or array.

    {errors}
    """
    given, arguments = _given(fn)
    value = value if is_random(value) else jnp.asarray(value)
    shape = np.broadcast_shapes(
        value.shape, jnp.shape(power), *(argument.shape for argument in arguments)
    )
    return likelihoods.log_expectation(
        _over_nodes(lambda value, *points: _log_prob(given(*points), value), shape),
        _double(value),
        *arguments,
        knots=_knots(fn, value),
        power=power,
    )


def _log_predictive(fn: Any) -> Callable[[jax.Array], jax.Array]:
    """From observations to their log predictive density."""
    return partial(tempered, fn) if has_moments(fn) else restored(fn).log_prob


def _density(fn: Any, value: jax.Array) -> Callable[..., jax.Array]:
    """The log density of values, given points of the random parameters."""
    return _of_values(fn, value, _log_prob)


def _log_prob(certain: Any, value: jax.Array) -> jax.Array:
    return within(certain.support, value, certain.log_prob(value), -math.inf, -math.inf)


def _cdf(certain: Any, value: jax.Array) -> jax.Array:
    return within(certain.support, value, certain.cdf(value), 0.0, 1.0)


def _of_values(
    fn: Any, value: jax.Array, asked: Callable[[Any, jax.Array], jax.Array]
) -> Callable[..., jax.Array]:
    """What is asked of the distribution for values, at points of its random parameters."""
    given, arguments = _given(fn)
    if not arguments:
        return lambda value: asked(given(), value)
    shape = np.broadcast_shapes(value.shape, *(argument.shape for argument in arguments))
    return _over_nodes(lambda value, *points: asked(given(*points), value), shape)


def _attribute(fn: Any, name: str) -> Callable[..., jax.Array]:
    """Mean, variance or the like of the distribution at points of its random parameters."""
    return _at_points(fn, lambda certain: getattr(certain, name))


def _at_points(fn: Any, asked: Callable[[Any], jax.Array]) -> Callable[..., jax.Array]:
    """What is asked of the distribution, at points of its random parameters."""
    given, arguments = _given(fn)
    shapes = [argument.shape for argument in arguments] or [fn.batch_shape]
    return _over_nodes(lambda *points: asked(given(*points)), np.broadcast_shapes(*shapes))


def marginal(name: str, fn: Any) -> Marginal:
    """What is known of the predictive distribution: that of counts, or the host's own integrated.

    Args:
        name: the site.
        fn: univariate distribution.
    """
    family, support = type(fn).__name__, placeholder(fn).support
    low, high = bounds_of(support, is_random)
    _, arguments = _given(fn)
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
        partial(_surprisal, fn),
        (low, 1 if is_binary else high),
        partial(_success, fn) if isinstance(fn, _TRIALS) else None,
        len(arguments),
        mean_quantile=mean_quantile,
    )


def _entropy(name: str, fn: Any) -> jax.Array:
    """E_q of the entropy, by the distribution's own one."""
    _, arguments = _given(fn)
    try:
        return likelihoods.expectation(_at_points(fn, lambda fn: fn.entropy()), *arguments)
    except NotImplementedError:
        raise no_entropy_given(name, type(fn).__name__) from None


def _surprisal(fn: Any, value: jax.Array) -> jax.Array:
    """E_q[−p log p] of the probabilities of counts."""
    _, arguments = _given(fn)
    return likelihoods.expected_surprisal(_density(fn, value), value, *arguments)


def _success(fn: Any) -> jax.Array:
    """E_q of the probability of a success."""
    _, arguments = _given(fn)
    return likelihoods.expectation(_attribute(fn, "probs"), *arguments)


def _cumulative(fn: Any, value: jax.Array) -> jax.Array:
    """P(y ≤ value), by the distribution's own function."""
    _, arguments = _given(fn)
    cumulative = _of_values(fn, value, _cdf)
    return likelihoods.expected_probability(cumulative, value, *arguments, knots=_knots(fn, value))


def drawn(fn: Any, key: jax.Array, count: int, shape: tuple[int, ...]) -> jax.Array:
    """Draws of the parameters, and of an observation given each of them.

    Args:
        fn: univariate distribution with random parameters.
        key: random key.
        count: how many.
        shape: of an observation.

    Returns:
        Array [count, *shape].
    """
    given, arguments = _given(fn)
    keys = iter(jax.random.split(key, 3))  # of at most two Gaussians, and of the observation

    def noise(shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(next(keys), shape)

    points = likelihoods.drawn(arguments, count, noise)

    def observation(key: jax.Array, *points: jax.Array) -> jax.Array:
        return given(*points).expand(shape).sample(key)

    return jax.vmap(observation)(jax.random.split(next(keys), count), *points)


def _over_nodes(function: Callable[..., Any], shape: tuple[int, ...]) -> Callable[..., jax.Array]:
    """A function of arrays that broadcast to a shape, mapped over the nodes before it.

    The distribution sees one node at a time, and so the shapes that it was made for.
    """

    def mapped(*arguments: Any) -> jax.Array:
        if not arguments:
            return jnp.broadcast_to(function(), shape)
        wide = np.broadcast_shapes(shape, *(jnp.shape(argument) for argument in arguments))
        nodes = wide[: len(wide) - len(shape)]
        flat = [jnp.reshape(jnp.broadcast_to(a, wide), (-1, *shape)) for a in arguments]
        found = jax.vmap(function)(*flat)
        return jnp.reshape(jnp.broadcast_to(found, flat[0].shape), (*nodes, *shape))

    return mapped


def _given(fn: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The distribution as a function of points of its random parameters, and those."""
    arguments, given = replaced(fn)
    check_univariate(fn, arguments)
    check_confined(fn, constrained_values(fn), _is_real, links="jnp.exp(h) or jax.nn.sigmoid(h)")
    return given, arguments


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
    """The observation, where a density of a residual bends, and zero, where links do."""
    if is_random(value) or not jnp.issubdtype(value.dtype, jnp.floating):
        return (0.0,)
    return (0.0, _double(value)) if hasattr(fn, "loc") else (0.0,)
