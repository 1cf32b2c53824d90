"""Products with exponentials: of sums, with each other, and with a Gaussian that they scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

from moment_calculus.functions.families.elementary import capped_exp, capped_expm1, split_expm1
from moment_calculus.functions.integrated import Integrated
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import Array, namespace, outer, safe_scale, transpose
from moment_calculus.operations.elementwise.drivers import affine_relation
from moment_calculus.operations.elementwise.sums import add, terms_of, try_add
from moment_calculus.operations.elementwise.unary import apply, exponential_parts, scale_shift
from moment_calculus.operations.shapes.reshaping import narrow
from moment_calculus.values import (
    Deferred,
    Gaussian,
    Value,
    cross_covariance,
    elementwise_covariance,
    features_last,
)
from moment_calculus.values.deferred import as_function
from moment_calculus.values.elementwise import with_rule_book
from moment_calculus.values.spread import overlap


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
