"""Sums and differences, and the alignment and dependence of operands of sums and products.

A result keeps the step that computed it, so that its cross-covariance with any other value
can be computed later. Operands that are not random are plain arrays or numbers.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from moment_calculus.errors import DependenceWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import Array, positive_part, safe_scale, transpose
from moment_calculus.operations.elementwise.unary import (
    are_of_one_gaussian,
    fuse_functions,
    is_value,
    one_function,
    scale_shift,
    stays_function,
)
from moment_calculus.operations.shapes.reshaping import (
    Expanded,
    as_scalars,
    broadcast,
    has_crossed_features,
    narrow,
)
from moment_calculus.values import (
    Gaussian,
    Spread,
    Ties,
    Value,
    cross_covariance,
    elementwise_covariance,
)
from moment_calculus.values.ancestry import (
    ancestors,
    combine_branches,
    from_vector_parts,
    is_rearranged,
)
from moment_calculus.values.covariances import elements_of
from moment_calculus.values.lags import Along, Pairs, pairs_of_terms
from moment_calculus.values.protocols import KnowsLags, Rewritable, Switched
from moment_calculus.values.spread import broadcast_shape, overlap

__all__ = ["add", "subtract"]

DEPENDENCE_REMEDY = (
    "rewrite the model so that the operands do not share a latent site, or draw that site by "
    "naming it in sample_sites="
)


@dataclass(frozen=True, eq=False)
class Sum(KnowsLags, Rewritable, Switched):
    """Step of the sum x + y of two Gaussian values."""

    inputs: tuple[Gaussian, Gaussian]
    componentwise: bool
    drops_covariance: bool = False
    identity = True

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangent itself."""
        return cotangent

    def pairs(self, value: Gaussian, pairs: Pairs | Along) -> Array | None:
        """Return the sum of those of the terms; of dependent ones along an axis in their ratio."""
        first, second = self.inputs
        if not (isinstance(pairs, Along) and overlap(first, second)):
            return pairs_of_terms(value, pairs)
        total = pairs_of_terms(value, pairs, dependent=True)
        if total is None:
            return None
        apart = safe_scale(first.variance + second.variance)
        left, right = pairs.ends(safe_scale(value.variance) / apart)
        return total * left * right

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        """Return the axis itself."""
        return axis

    def between_features(self, value: Gaussian, rows: slice, columns: slice) -> Array | None:
        """Return the covariance of some features with others, for independent terms."""
        if overlap(*self.inputs):
            return None
        first, second = (part.covariance_between(rows, columns) for part in self.inputs)
        return first + second

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian | None:
        """Return the sum of the moved terms."""
        return try_add(*(move.apply_to(part, like) for part in self.inputs))

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian:
        return add_values(*inputs).gaussian()

    def branches(self, value: Gaussian, input_branches: Any) -> Any:
        """Return the sums of the branches of the terms."""
        return combine_branches(self.inputs, input_branches, add_any)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the sum of the terms as vectors."""
        return from_vector_parts(_add_vectors, *self.inputs)


def _add_vectors(left: Gaussian, right: Gaussian) -> Value | None:
    return None if cross_covariance(left, right) is None else add_values(left, right)


def add_any(left: Any, right: Any) -> Any:
    """Add values or arrays; functions of one Gaussian are integrated as one function."""
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return scale_shift(left, 1.0, right).gaussian() if is_value(left) else left + right
    return one_function(operator.add, left, right) or add_values(left, right)


def add_values(left: Value, right: Value) -> Gaussian:
    """Add two values; the diagonal mode warns of an unknown covariance and takes it as zero."""
    total = try_add(left.gaussian(), right.gaussian())
    if total is not None:
        return total
    if left.propagation.has_full_covariance:
        return raise_dependence_error("sum", left, right)
    shared = ", ".join(sorted(overlap(left, right)))
    if not left.propagation.is_backward:
        warn_user(
            f"the terms of a sum both depend on latent site(s) {shared} and their covariance is "
            f"not known: it is taken as zero; {DEPENDENCE_REMEDY}",
            DependenceWarning,
        )
    return try_add(left.gaussian(), right.gaussian(), independent=True)


def try_add(
    left: Gaussian, right: Gaussian, *, independent: bool = False, elementwise: bool = False
) -> Any:
    """Add two Gaussians; return None if they depend on each other in an unknown way.

    ``independent`` ignores their dependence; ``elementwise`` computes means and variances
    only.
    """
    left, right, axis = aligned(left, right)
    shared = bool(overlap(left, right)) and not independent
    covariance, variance = None, None
    if is_dense(left, right, shared) and not elementwise:
        cross = _cross_or_none(left, right) if shared else None
        if shared and cross is None:
            return None
        covariance = partial(_covariance_of_sum, left, right, cross)
        # without a covariance, if none is needed for the variances of the terms
        have_variances = left.spread.variance is not None and right.spread.variance is not None
        if shared:
            variance = partial(_variance_of_dependent, left, right, cross)
        elif have_variances:
            variance = left.variance + right.variance
    else:
        cross = elementwise_covariance(left, right) if shared else 0.0
        if cross is None:
            return None
        variance = left.variance + right.variance + 2 * cross
        variance = positive_part(variance) if shared else variance  # rounding may leave it negative
    return Gaussian(
        left.mean + right.mean,
        Spread(variance, covariance or partial(_covariance_of_sum, left, right), bool(covariance)),
        Sum((left, right), are_of_one_value(left, right), independent),
        axis=axis,
        ties=Ties.ALL if independent else ties_of(left, right),
        propagation=left.propagation,
    )


def _covariance_of_sum(left: Gaussian, right: Gaussian, cross: Any = NotImplemented) -> Array:
    if cross is NotImplemented:
        cross = _cross_or_none(left, right)
    both = 0.0 if cross is None else cross + transpose(cross)
    return left.joint_covariance() + right.joint_covariance() + both


def _variance_of_dependent(left: Gaussian, right: Gaussian, cross: Array) -> Array | None:
    """Return the variance of a sum without its covariance; None where it may not fit that."""
    bends = any(part.step.nonlinear for term in (left, right) for part in ancestors(term))
    if bends or not left.propagation.has_full_covariance:
        return None
    total = left.variance + right.variance + 2 * elements_of(cross, left)
    return positive_part(total)  # rounding may leave it negative


def _cross_or_none(left: Gaussian, right: Gaussian) -> Array | None:
    return cross_covariance(left, right) if left.axis == right.axis else None


def raise_dependence_error(what: str, left: Value, right: Value) -> NoReturn:
    """Raise UnsupportedMoments for an operation on values with unknown joint moments."""
    shared = ", ".join(sorted(overlap(left, right)))
    raise UnsupportedMoments(
        f"{what} of two values that both depend on latent site(s) {shared}; their joint moments "
        "are not known",
        sites=left.sites | right.sites,
        remedy=f"use covariance='backward', {DEPENDENCE_REMEDY}",
    )


def terms_of(value: Gaussian) -> list[Gaussian]:
    """Return the values, before they were broadcast, of which a value is the sum."""
    value = narrow(value)
    if isinstance(value.step, Sum):
        return [part for source in value.step.inputs for part in terms_of(source)]
    return [value]


def aligned(left: Gaussian, right: Gaussian) -> tuple[Gaussian, Gaussian, int | None]:
    """Broadcast two values to one shape and one feature axis; return both and that axis."""
    left, right = _without_crossed_axes(left, right)
    shape = broadcast_shape(left.shape, right.shape)
    # The feature axis is that of the value with all axes; of two such values, of the
    # dependent one.
    wide, narrow = (left, right) if left.mean.ndim == len(shape) else (right, left)
    if narrow.mean.ndim == len(shape) and wide.independent and not narrow.independent:
        wide, narrow = narrow, wide
    axis = narrow.axis if wide.axis is None else wide.axis
    return broadcast(left, shape, axis), broadcast(right, shape, axis), axis


def _without_crossed_axes(left: Gaussian, right: Gaussian) -> tuple[Gaussian, Gaussian]:
    """Return dependent values with features along different axes as batches of scalars.

    So effects of crossed plates that have one joint posterior keep the covariance of each pair.
    """
    alike = left.axis == right.axis or (left.independent and right.independent)
    if alike or not left.propagation.has_full_covariance:
        return left, right
    if not _are_crossed(left, right) or not overlap(left, right):
        return left, right
    scalars = [value if value.axis is None else as_scalars(value) for value in (left, right)]
    first, second = scalars
    return (left, right) if first is None or second is None else (first, second)


def _are_crossed(left: Gaussian, right: Gaussian) -> bool:
    """Whether two values have features along different axes, or one such and one as scalars."""
    vectors = [v for v in (left, right) if v.axis is not None and v.shape[v.axis] > 1]
    if len(vectors) != 1:
        return len(vectors) == 2
    scalars = right if vectors[0] is left else left
    if scalars.axis is not None or scalars.shape == ():
        return False
    return vectors[0].axis != -1 or has_crossed_features(scalars)


def is_dense(left: Gaussian, right: Gaussian, shared: bool) -> bool:
    """Whether a sum or product of aligned values propagates a covariance of its components."""
    # In diagonal mode a softmax or a chain propagates its covariance, unless the other
    # operand has dropped its own.
    if left.has_covariance or right.has_covariance:
        return left.propagation.has_full_covariance or not (
            _has_dropped(left) or _has_dropped(right)
        )
    if left.axis is None:
        return False  # scalars: their variance is all there is
    return shared and left.propagation.has_full_covariance and left.origin is not right.origin


def _has_dropped(value: Gaussian) -> bool:
    # Copies of one component have no covariance to drop.
    repeated = isinstance(value.step, Expanded) and not value.step.identity
    return not (value.has_covariance or value.independent or repeated)


def are_of_one_value(left: Gaussian, right: Gaussian) -> bool:
    """Whether two aligned values are functions of one value, component by component."""
    return left.origin is right.origin


def ties_of(left: Gaussian, right: Gaussian) -> Ties:
    """Return which components of a sum or product of aligned values may be dependent."""
    unrelated = are_of_one_value(left, right) or not overlap(left, right)
    if left.independent and right.independent and unrelated:
        return Ties.NONE
    # Dependent elements must be aligned one by one; in the difference of neighbours they
    # are not.
    batches_match = (
        left.batch_independent and right.batch_independent and not is_rearranged(left, right)
    )
    return Ties.FEATURES if batches_match else Ties.ALL


def add(left: Any, right: Any) -> Value:
    """Add two operands, at least one random; dependence enters by the exact cross-covariance.

    If they share a latent site and their joint moments are unknown, full covariances
    raise UnsupportedMoments; the diagonal mode takes their covariance as zero and warns.
    """
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return scale_shift(left, 1.0, right)
    if left is right:
        return scale_shift(left, 2.0)
    if are_of_one_gaussian(left, right):
        return fuse_functions(
            operator.add, left, right, bounds=lambda: left.bounds.plus(right.bounds)
        )
    compute_sum = lambda: add_values(left, right)  # noqa: E731
    return (
        fuse_functions(operator.add, left, right, fallback=compute_sum)
        if stays_function(left, right)
        else compute_sum()
    )


def subtract(left: Any, right: Any, *, elementwise: bool = False) -> Value:
    """Subtract two operands, at least one random; raise if their joint moments are unknown.

    The backward mode takes their covariance as zero, as in sums, until it is asked for.
    With ``elementwise`` only means and variances are computed, no covariance between
    components.
    """
    if not is_value(right):
        return scale_shift(left, 1.0, -right)
    if not is_value(left):
        return scale_shift(scale_shift(right, -1.0), 1.0, left)
    if are_of_one_gaussian(left, right):
        return fuse_functions(operator.sub, left, right)
    compute_difference = lambda: _subtracted(left, right, elementwise)  # noqa: E731
    return (
        fuse_functions(operator.sub, left, right, fallback=compute_difference)
        if stays_function(left, right)
        else compute_difference()
    )


def _subtracted(left: Value, right: Value, elementwise: bool) -> Any:
    opposite = scale_shift(right, -1.0)
    if left.propagation.is_backward:
        return add_values(left, opposite)
    total = try_add(left.gaussian(), opposite.gaussian(), elementwise=elementwise)
    return raise_dependence_error("difference", left, right) if total is None else total
