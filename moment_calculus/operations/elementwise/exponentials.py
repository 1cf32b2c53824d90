"""Products with exponentials: of sums, with each other, and with a Gaussian that they scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

from moment_calculus.functions.families.elementary import capped_exp, split_expm1
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import Array, namespace, outer, transpose
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
