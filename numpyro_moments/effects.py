"""Effects of time, places, curves and groups: priors of models, by NumPyro's own statements.

Each function is called within a model. It samples a site ``<name>_standardised`` of standard
Normals, has the effect as the deterministic site ``<name>``, and returns it. Scales, correlations,
lengths and shares are sites of the model, or numbers. Such models are for ``nested``, ``fit`` and
NumPyro's own samplers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from moment_inference import structures

__all__ = ["autoregressive", "bym2", "groups", "hilbert_space", "neighbours", "random_walk"]
__all__ += ["spline"]

Array = jax.Array


def random_walk(name: str, scale: Any, count: int, order: int = 1) -> Array:
    """Sample a random walk about its mean, or of order 2 about its straight line.

    Differences of the order are independent. What they leave open, a level (order 1) or a line
    (order 2), is no part of the effect: give these sites of their own.

    Args:
        name: of the effect.
        scale: typical standard deviation of an element: the geometric mean is the scale.
        count: number of times, in equal distances.
        order: 1 or 2.

    Returns:
        The effect at each time, [count]; without a mean, and of order 2 without a slope.

    Source: Sørbye and Rue 2014.
    """
    basis = structures.walk(count, order).basis
    return _effect(name, basis, scale * _standardised(name, count - order))


def autoregressive(name: str, scale: Any, correlation: Any, count: int) -> Array:
    """Sample a stationary autoregressive series of order 1.

    For ``nested`` and samplers; ``fit`` takes it with ``unsupported="held draws"``, since products
    of powers of a random correlation and the series have no moment rule.

    Args:
        name: of the effect.
        scale: standard deviation of each element.
        correlation: of neighbouring elements, between −1 and 1.
        count: number of times, in equal distances.

    Returns:
        The effect at each time, [count].
    """
    z = _standardised(name, count)
    lags, is_past = structures.lags_of(count)
    powers = _constant(is_past, z) * correlation ** jnp.asarray(lags)
    new = (1 - correlation**2) ** 0.5
    path = powers[:, 0] * z[0] + new * (powers[:, 1:] @ z[1:])
    return numpyro.deterministic(name, scale * path)


def neighbours(name: str, scale: Any, edges: Any, places: int) -> Array:
    """Sample an effect of places that is alike at neighbours (ICAR).

    Each connected part of the map sums to zero and has the same typical deviation; a place without
    neighbours is independent of all others.

    Args:
        name: of the effect.
        scale: typical standard deviation of a place: the geometric mean is the scale.
        edges: pairs of neighbours [m, 2], known where the model is written: no argument of it.
        places: number of places.

    Returns:
        The effect of each place, [places].

    Source: Freni-Sterrantino, Ventrucci and Rue 2018.
    """
    basis = structures.map_of(edges, places).basis
    return _effect(name, basis, scale * _standardised(name, basis.shape[1]))


def bym2(name: str, scale: Any, share: Any, edges: Any, places: int) -> Array:
    """Sample an effect of places, of which a share is alike at neighbours (BYM2).

    It is scale · (√(1 − share) own + √share near) of independent and of neighbouring effects with
    deviation 1, whose sum is sampled in the coordinates of the map: one site, as long as the map.

    Args:
        name: of the effect.
        scale: typical standard deviation of a place.
        share: of the variance, that is alike at neighbours, between 0 and 1.
        edges: pairs of neighbours [m, 2], known where the model is written: no argument of it.
        places: number of places.

    Returns:
        The effect of each place, [places].

    Source: Riebler, Sørbye, Simpson and Rue 2016.
    """
    spectrum = structures.map_of(edges, places)
    z = _standardised(name, places)
    variances = 1 + share * _constant(spectrum.variances - 1, z)
    return _effect(name, spectrum.vectors, scale * variances**0.5 * z)


def hilbert_space(
    name: str,
    x: Any,
    height: Any,
    length: Any,
    functions: int = 20,
    boundary: float = 1.5,
    kernel: str = "squared exponential",
    between: tuple[float, float] | None = None,
) -> Array:
    """Sample a Gaussian process of one input, by a Hilbert-space basis (HSGP).

    Functions and boundary are enough for lengths above 1.75 · boundary / functions times the width
    of the inputs, and up to about a quarter of it (squared exponential).

    Args:
        name: of the effect.
        x: the inputs, [n].
        height: standard deviation of the process.
        length: its length scale, in units of x.
        functions: of the basis.
        boundary: how much wider than the inputs the interval of the basis is.
        kernel: "squared exponential", "matern 3/2" or "matern 5/2".
        between: the least and the largest input; name them where a model is to predict at others.

    Returns:
        The process at the inputs, [n].

    Source: Solin and Särkkä 2020; Riutort-Mayol et al. 2023.
    """
    z = _standardised(name, functions)
    x = _constant(x, z)
    size = structures.Interval.of(x, between), functions, boundary
    basis, squares = structures.hilbert_functions(x, *size), structures.hilbert_squares(x, *size)
    root = structures.kernel_root(kernel)(squares, height, length, jnp.exp)
    return _effect(name, basis, root * z)


def groups(name: str, scale: Any, index: Any, count: int, centred: bool = False) -> Array:
    """Sample an effect of each group; crossed or nested ones by one call each.

    Args:
        name: of the effect.
        scale: standard deviation of a group's effect.
        index: group of each row, [n]; of nested groups the number of the combination.
        count: number of groups.
        centred: whether the effects themselves are sampled, as the site ``<name>``: better for
            ``fit`` and for many rows a group; standardised ones are better for samplers.

    Returns:
        The effect of each row's group, [n]; the site ``<name>`` has those of the groups, [count].
    """
    if centred:
        prior = dist.Normal(0.0, scale).expand([count]).to_event(1)
        effect = numpyro.sample(name, prior)
    else:
        effect = numpyro.deterministic(name, scale * _standardised(name, count))
    return effect[jnp.asarray(index)]


def spline(
    name: str,
    x: Any,
    scale: Any,
    functions: int = 20,
    degree: int = 3,
    order: int = 2,
    between: tuple[float, float] | None = None,
) -> Array:
    """Sample a smooth curve, whose B-spline coefficients are a random walk (P-spline).

    Args:
        name: of the effect.
        x: the inputs, [n].
        scale: typical standard deviation of a coefficient, and of the curve.
        functions: number of B-splines.
        degree: of their pieces.
        order: of the walk; of order 2 the curve has no straight line: give the model one.
        between: the least and the largest input; name them where a model is to predict at others.

    Returns:
        The curve at the inputs, [n].

    Source: Eilers and Marx 1996; Lang and Brezger 2004.
    """
    z = _standardised(name, functions - order)
    x = _constant(x, z)
    basis = structures.spline_functions(x, structures.Interval.of(x, between), functions, degree)
    walk = _constant(structures.walk(functions, order).basis, z)
    return _effect(name, basis @ walk, scale * z)


def _constant(values: Any, like: Array) -> Array:
    return jnp.asarray(values, like.dtype)


def _standardised(name: str, size: int) -> Array:
    prior = dist.Normal(0.0, 1.0).expand([size]).to_event(1)
    return numpyro.sample(f"{name}_standardised", prior)


def _effect(name: str, basis: Any, weights: Array) -> Array:
    return numpyro.deterministic(name, _constant(basis, weights) @ weights)
