"""Products with exponentials: of sums, with each other, and with a Gaussian that they scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, NamedTuple

from moment_calculus.functions.families.elementary import capped_exp, capped_expm1, split_expm1
from moment_calculus.functions.integrated import Integrated
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import (
    Array,
    cast_clipped,
    constants,
    diagonal,
    identity_like,
    namespace,
    outer,
    safe_scale,
    to_float64,
    transpose,
)
from moment_calculus.numerics.quadrature import trapezoidal
from moment_calculus.operations.elementwise.drivers import affine_relation
from moment_calculus.operations.elementwise.sums import add, terms_of, try_add
from moment_calculus.operations.elementwise.unary import apply, exponential_parts, scale_shift
from moment_calculus.operations.shapes.reshaping import narrow, reshape
from moment_calculus.values import (
    Deferred,
    Gaussian,
    Spread,
    Value,
    cross_covariance,
    elementwise_covariance,
    features_last,
)
from moment_calculus.values.deferred import as_function
from moment_calculus.values.elementwise import with_rule_book
from moment_calculus.values.spread import overlap
from moment_calculus.values.step import Product, Step


def exponential_apart(value: Value, other: Value) -> tuple[Value, Value] | None:
    """Return c e^{u+v} as c e^u and e^v, for another function of v alone; None for other values.

    Then e^v times that function is one function of v, and independent of e^u.
    """
    parts = exponential_parts(value)
    if parts is None or not isinstance(other, Deferred) or not overlap(value, other):
        return None
    exponent, rate, factor = parts
    terms = terms_of(exponent)
    free: list[Value] = [term for term in terms if not overlap(term, other)]
    if len(terms) != len(free) + 1 or not free:
        return None
    (shared,) = (term for term in terms if overlap(term, other))
    if (relation := affine_relation(narrow(other.base), shared)) is None:
        return None
    scale, shift = (rate * part for part in relation)
    exponential = activation("exp")
    of_free = apply(exponential, scale_shift(reduce(add, free), rate).gaussian())
    return scale_shift(of_free, factor), apply(exponential, scale_shift(other.base, scale, shift))


def product_of_exponentials(left: Value, right: Value) -> Value | None:
    """Return b eʳˣ · c eˢʸ = bc e^{rx + sy}; None if a factor is not an exponential.

    A Gaussian with the moments of the product would be neither positive nor a function of
    one Gaussian, so that its powers and logarithms would not be supported.
    """
    first, second = exponential_parts(left), exponential_parts(right)
    if first is None or second is None:
        return None
    (x, rate, factor), (y, other_rate, other_factor) = first, second
    exponent = try_add(scale_shift(x, rate).gaussian(), scale_shift(y, other_rate).gaussian())
    if exponent is None:
        return None
    return scale_shift(apply(activation("exp"), exponent), factor * other_factor)


class Bends(NamedTuple):
    """Covariances of the deviations d = f − E f and e = g − E g of two factors f and g."""

    plain: Array  # Cov(d, e)
    second: Array  # Cov(d, e²)
    first: Array  # Cov(d², e)
    both: Array  # Cov(d², e²)

    def variances(self, first: Gaussian, second: Gaussian) -> tuple[Array, Array]:
        """Return the exact variance of the product, and that of Gaussian factors."""
        mean_x, mean_y, plain = first.mean, second.mean, self.plain
        common = mean_x**2 * second.variance + mean_y**2 * first.variance
        common = common + 2 * mean_x * mean_y * plain + first.variance * second.variance
        total = common + 2 * (mean_x * self.second + mean_y * self.first) + self.both - plain**2
        xp = namespace(total)
        return xp.clip(total, min=0.0), xp.clip(common + plain**2, min=0.0)


def bends_beside_exponential(first: Gaussian, second: Gaussian) -> Bends | None:
    """Return those of an exponential and another function of jointly Gaussian values, or None."""
    if first.propagation.is_backward or not overlap(first, second):
        return None
    if (found := _tilted_bends(first, second)) is not None:
        return found
    found = _tilted_bends(second, first)
    return None if found is None else Bends(found.plain, found.first, found.second, found.both)


def _tilted_bends(exponential: Gaussian, other: Gaussian) -> Bends | None:
    """Return those of f = c eˣ and g(y), by one integral over y.

    With z = (y − E y)/σ_y and λ = Cov(x, y)/σ_y it is E[e^{kx} | y] = E e^{kx} (1 + r_k), r_k =
    e^{kλz − k²λ²/2} − 1, so that E[d h] = E f E[r_1 h] and E[d² h] = (E f)² E[(e^v (1 + r_2) −
    2 r_1 − 1) h], v the variance of x.
    """
    parts = exponential_parts(as_function(exponential))
    if parts is None or other.step.function is None:
        return None
    exponent = scale_shift(parts[0], parts[1]).gaussian()
    base, function = other.step.function[0], with_rule_book(*other.step.function)
    between = elementwise_covariance(exponent, base) if exponent.shape == base.shape else None
    if between is None:
        return None
    scale = safe_scale(base.variance)
    xp, lean = namespace(scale), between / scale
    growth, place = capped_expm1(exponent.variance), (..., 0, *[slice(None)] * len(base.shape))

    def weighted(points: Array) -> Array:  # the same in four rows
        x = points[place]
        z, rest = (x - base.mean) / scale, function(x) - other.mean
        once = capped_expm1(lean * z - lean * lean / 2)
        twice = capped_expm1(2 * lean * (z - lean))
        bent = growth * (1 + twice) + (twice - 2 * once)
        terms = once * rest, once * rest**2, bent * rest, (bent - growth) * rest**2
        return xp.stack(terms, axis=-1 - len(base.shape))

    rows = [xp.broadcast_to(part, (4, *base.shape)) for part in (base.mean, base.variance)]
    found = Integrated(weighted, getattr(function, "knots", (0.0,))).expectation(*rows)
    mean = exponential.mean
    return Bends(mean * found[0], mean * found[1], mean**2 * found[2], mean**2 * found[3])


@dataclass(frozen=True, eq=False)
class LognormalProduct:
    """The exact second moments of c eˣ · y.

    With A = c e^{E x + Var x / 2} and g_i = E y_i + Cov(x_i, y_i), E c eˣ y = A g and

        Cov(c e^{x_i} y_i, c e^{x_j} y_j) = A_i A_j (e^{Cov(x_i, x_j)}
            [(g_i + Cov(x_j, y_i)) (g_j + Cov(x_i, y_j)) + Cov(y_i, y_j)] − g_i g_j);

    A g Cov(x, u) + A Cov(y, u) is the covariance with a third Gaussian u (Stein's lemma).
    """

    factors: tuple[Gaussian, Gaussian]  # c eˣ and y, in either order
    place: int  # of c eˣ among them
    exponent: Gaussian  # x
    scale: Array | float  # c
    between: Array  # Cov(x_i, y_i)
    cross: Array  # Cov(x_i, y_j), [..., d, d]

    @classmethod
    def of(cls, first: Gaussian, second: Gaussian) -> LognormalProduct | None:
        """Return the product of an exponential and a Gaussian on which it depends, or None."""
        if first.propagation.is_backward:
            return None
        return cls._at(0, first, second) or cls._at(1, first, second)

    @classmethod
    def _at(cls, place: int, *factors: Gaussian) -> LognormalProduct | None:
        exponential, other = factors[place], factors[1 - place]
        parts = exponential_parts(as_function(exponential))
        if parts is None or other.step.function is not None:
            return None
        exponent = scale_shift(parts[0], parts[1]).gaussian()
        if exponent.shape != exponential.shape or exponent.axis != exponential.axis:
            return None
        between = elementwise_covariance(exponent, other)
        cross = cross_covariance(exponent, other)
        if between is None or cross is None:
            return None
        return cls((factors[0], factors[1]), place, exponent, parts[2], between, cross)

    @property
    def _other(self) -> Gaussian:
        return self.factors[1 - self.place]

    @cached_property
    def gains(self) -> tuple[Array, Array]:
        """Return by what deviations of each factor are multiplied."""
        gains = self._other.mean + self.between, self.factors[self.place].mean
        return gains if self.place == 0 else gains[::-1]

    @cached_property
    def _exponent(self) -> Array:
        """Return the logarithm of A / c."""
        return self.exponent.mean + self.exponent.variance / 2

    def _combined(self, exponents: Array, growth: Array, grows: Array, stays: Array) -> Array:
        """Return e^exponents ((e^growth − 1) grows + stays), capped so that it is finite."""
        up, rest = split_expm1(growth)
        grown = capped_exp(exponents + up, share=0.5) * rest * grows
        return grown + capped_exp(exponents, share=0.5) * stays

    @cached_property
    def variance(self) -> Array:
        """Return the variance."""
        mean, noise, between = self._other.mean, self._other.variance, self.between
        grows = (mean + 2 * between) ** 2 + noise
        stays = noise + between * (2 * mean + 3 * between)
        total = self._combined(2 * self._exponent, self.exponent.variance, grows, stays)
        return self.scale**2 * namespace(mean).clip(total, min=0.0)

    def covariance_with(self, other: LognormalProduct, query: Any) -> Array | None:
        """Return the covariance with another such product, [..., d, e], by the same formula."""
        if self._other.axis != -1 or other._other.axis != -1:
            return NotImplemented
        ours, theirs = (self.exponent, self._other), (other.exponent, other._other)
        pairs = [query.cross(one, another) for one in ours for another in theirs]
        if any(part is None for part in pairs):
            return NotImplemented
        growth, cross, back, noise = pairs
        rows = (self._other.mean + self.between)[..., :, None]
        columns = (other._other.mean + other.between)[..., None, :]
        grows = (rows + back) * (columns + cross) + noise
        stays = noise + back * columns + cross * rows + cross * back
        exponents = self._exponent[..., :, None] + other._exponent[..., None, :]
        total = self._combined(exponents, growth, grows, stays)
        scales = [part.scale + 0.0 * part._other.mean for part in (self, other)]
        return outer(*scales) * total

    def covariance(self) -> Array:
        """Return the covariance [..., d, d]."""
        last = lambda array: features_last(array, self._other.axis)  # noqa: E731
        gain, exponent = last(self._other.mean + self.between), last(self._exponent)
        cross, back, noise = self.cross, transpose(self.cross), self._other.joint_covariance()
        rows, columns = gain[..., :, None], gain[..., None, :]
        grows = (rows + back) * (columns + cross) + noise
        stays = noise + back * columns + cross * rows + cross * back
        exponents = exponent[..., :, None] + exponent[..., None, :]
        total = self._combined(exponents, self.exponent.joint_covariance(), grows, stays)
        scale = last(self.scale + 0.0 * self._other.mean)
        return outer(scale, scale) * total


POINTS, EDGE = 128, 8.5  # of integrals over the value in g, in its standard deviations


@dataclass(frozen=True, eq=False)
class _ScaledFunctions(Step):
    """Step of c eˣ g(y) ∘ z by its expected slopes: exact covariances with Gaussians (Stein)."""

    inputs: tuple[Gaussian, ...] = field()  # x [1], y [1] and z [d]
    slopes: tuple[Array, ...]
    profile: Any  # g
    scale: Array | float  # c

    def through(self, input_index: int, cross: Array) -> Array:
        return self.slopes[input_index] @ cross

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        return (0, 1)

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian | None:
        return _scaled_functions(inputs, self.profile, self.scale)


def product_of_scaled_functions(first: Gaussian, second: Gaussian) -> Gaussian | None:
    """Return c eˣ g(y) ∘ z of two numbers x and y and a vector z that may lean on them, or None.

    One factor is the product of an exponential and a function, as the spectral density of a
    Gaussian process is; the weights of its basis are the other.
    """
    if first.propagation.is_backward or not overlap(first, second):
        return None
    return _with_vector(first, second) or _with_vector(second, first)


def _with_vector(product: Gaussian, vector: Gaussian) -> Gaussian | None:
    source = product if isinstance(product.step, Product) else getattr(product.step, "source", None)
    if source is None or not isinstance(source.step, Product) or vector.axis != -1:
        return None
    if len(vector.shape) > 1 or product.shape != vector.shape or vector.step.function is not None:
        return None
    for exponential, other in (source.step.inputs, source.step.inputs[::-1]):
        parts = exponential_parts(as_function(exponential))
        if parts is None or other.step.function is None:
            continue
        base, function = other.step.function[0], with_rule_book(*other.step.function)
        exponent = scale_shift(narrow(parts[0].gaussian()), parts[1]).gaussian()
        numbers = exponent, narrow(base)
        if all(math.prod(number.shape) == 1 for number in numbers):
            x, y = (reshape(number, (1,)) for number in numbers)
            return _scaled_functions((x, y, vector), function, parts[2])
    return None


def _scaled_functions(
    inputs: tuple[Gaussian, ...], function: Any, scale: Array | float
) -> Gaussian | None:
    """Return the product by points of u = (y − E y) / σ_y, at which x and z are jointly Gaussian.

    With λ and l their covariances with u, v and c the variance of x and its covariance with z
    that are left, A = c e^{E x + Var x / 2}, R_n = e^{λ u_n − λ² / 2} g(y_n) and M_n = E z + l u_n,
    E[· | u_n] is A R_n (M_n + c), and its covariance there A² R_n R_nᵀ ∘ {(e^v − 1) [(M_n + 2c)
    (M_n + 2c)ᵀ + S] + c (M_n + c)ᵀ + (M_n + c) cᵀ + c cᵀ + S} with the rest S of that of z.
    """
    x, y, z = inputs
    crosses = cross_covariance(x, y), cross_covariance(x, z), cross_covariance(y, z)
    if any(part is None for part in crosses):
        return None
    numbers = (part.mean for part in inputs), (part.variance for part in inputs[:2]), crosses
    means, variances, (x_y, x_z, y_z) = ([*map(to_float64, part)] for part in numbers)
    xp, sigma = namespace(means[0]), safe_scale(variances[1])
    nodes, weights = (constants(part[:, None], means[0]) for part in trapezoidal(POINTS, EDGE))
    lean, leans = (x_y[0] / sigma), y_z[0] / sigma  # λ [1], l [d]
    left, beside = xp.clip(variances[0] - lean**2, min=0.0), x_z[0] - lean * leans
    rest = to_float64(z.joint_covariance()) - outer(leans, leans)
    rows = xp.exp(lean * nodes - lean**2 / 2) * function(means[1] + sigma * nodes)
    size = scale * capped_exp(means[0] + variances[0] / 2)
    shifted = means[2] + leans * nodes + beside
    once, bare, lone = rows * shifted, rows, rows * beside
    sums = lambda one, other: (weights * one).mT @ other  # noqa: E731
    mean, by_vector = (xp.sum(weights * part, axis=0) for part in (once, bare))
    by_other = xp.sum(weights * rows * (shifted * (nodes - lean) - leans), axis=0) / sigma
    between = sums(once - mean, once - mean) + sums(bare, bare) * rest
    mixed = sums(lone, once)
    growth = sums(once + lone, once + lone) + sums(bare, bare) * rest
    covariance = between + mixed + mixed.mT + sums(lone, lone) + capped_expm1(left) * growth
    known = size * mean, size**2 * covariance, size * by_other, size * by_vector
    mean, covariance, by_other, by_vector = (cast_clipped(part, z.mean) for part in known)
    slopes = mean[:, None], by_other[:, None], by_vector[:, None] * identity_like(by_vector)
    return Gaussian(
        mean,
        Spread(diagonal(covariance), covariance, z.propagation.has_full_covariance),
        _ScaledFunctions(inputs, slopes, function, scale),
        propagation=z.propagation,
    )
