"""Linear maps of live values with certain or Gaussian weights.

Source: Wu et al. 2019 (DVI), eqs. 3-5, and Shekhovtsov et al. 2018, eq. 7 (certain weights).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from moment_calculus.numerics.arrays import Array, contract, diagonal_matrix
from moment_calculus.numerics.matrices import affine, affine_squared, squared
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.elementwise.arithmetic import add, multiply
from moment_calculus.operations.linear.weights import refuse_shared, refuse_tied
from moment_calculus.operations.shapes.moves import (
    move_axis,
    swap_last,
    warn_dropped,
    with_trailing_features,
)
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Gaussian, Spread, Step, Ties, Value, share_sites
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.spread import none_or_all
from moment_calculus.values.vectors import as_vector


def linear(inputs: Any, weight: Any, bias: Any = None) -> Value:
    """weight · x + bias over the trailing axis of x, exact in mean and covariance.

    E[y] = M μ + c and Cov[y] = M C Mᵀ + diag(S (diag C + μ∘μ) + t) for independent weights
    N(M, S) and biases N(c, t). In diagonal mode only diag C enters.

    Args:
        inputs: x [..., in], value or array.
        weight: [out, in], value or array; a random weight has independent components. A batch of
            weights [..., out, in] maps inputs [..., n, in], element by element.
        bias: [out], value or array, or None.

    Returns:
        Value [..., out].

    Raises:
        UnsupportedMoments: if the shapes do not fit, the components of the weight are dependent,
            or operands share a latent site.

    Source: Wu et al. 2019, eqs. 3-5.
    """
    x, w, b = _matched(inputs), _matched(weight), _matched(bias)
    if _is_dependent_row(w) and not isinstance(x, Gaussian):
        row = _times_vector(x, reshape(w, tuple(w.shape[1:])))
        product = reshape(row, (*row.shape, 1))
        return product if b is None else add(product, b)
    _check(x, w, b)
    if isinstance(b, Gaussian) and not _is_plain_bias(b, w):
        return add(linear(x, w), b)
    if isinstance(x, Gaussian) and isinstance(w, Gaussian):
        rule = x.propagation.replacement("linear")
        if rule is not None:
            return rule(x, w, b)
    mean = affine(_mean(x), _mean(w), _mean(b))
    if isinstance(x, Gaussian):
        return _random_input(x, w, b, mean)
    return _certain_input(x, w, b, mean)


@dataclass(frozen=True, eq=False)
class LinearMap(Step):
    """M x + c, with random or certain weights.

    Args:
        inputs: the random ones of the operands.
        bias: c, if it is random.
        mapped: the input that comes through the matrix; None if the inputs of the map are certain.
        matrix: the expected M.
        mixes: as of :class:`Step`.
    """

    inputs: tuple[Gaussian, ...] = field()
    bias: Any
    mapped: Gaussian | None = None
    matrix: Array = None
    mixes: bool = False

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the bias is all that is random."""
        return all(source is self.bias for source in self.inputs)

    def follows(self, place: int) -> bool:
        """What random weights add is not followed: outputs of different inputs share them."""
        return self.inputs[place] is self.mapped or self.inputs[place] is self.bias

    def through(self, place: int, cross: Array) -> Array | None:
        """By the matrix, or as it is."""
        if self.inputs[place] is self.mapped:
            return self.matrix @ cross
        return cross if self.inputs[place] is self.bias else None


def _is_plain_bias(bias: Gaussian, weight: Any) -> bool:
    """Whether a bias has one independent component for each output."""
    return bias.axis == -1 and bias.shape == tuple(weight.shape[:1]) and bias.independent


def _is_dependent_row(weight: Any) -> bool:
    """Whether a weight is one row with dependent components, as that of a full-rank guide."""
    row = len(weight.shape) == 2 and weight.shape[0] == 1
    return row and isinstance(weight, Gaussian) and not weight.independent


def _matched(operand: Any) -> Any:
    return operand.gaussian() if hasattr(operand, "gaussian") else operand


def _mean(operand: Any) -> Array:
    return operand.mean if isinstance(operand, Gaussian) else operand


def _certain_input(x: Array, w: Any, b: Any, mean: Array) -> Gaussian:
    """Rows of the weight are independent, so the outputs are: no covariance is needed."""
    weights = _random(w, b)
    variance = _noise(squared(x), w, b)
    return Gaussian(
        mean,
        Spread(namespace(mean).broadcast_to(variance, tuple(mean.shape))),
        LinearMap(weights, b),
        ties=none_or_all(math.prod(mean.shape[:-1]) == 1),
        propagation=weights[0].propagation,
    )


def _noise(second_moment: Array, w: Any, b: Any) -> Array | None:
    """S (v + μ∘μ) + t: what the variances of the weights and biases add to the outputs'."""
    shift = b.variance if isinstance(b, Gaussian) else None
    return affine(second_moment, w.variance, shift) if isinstance(w, Gaussian) else shift


def _random(*operands: Any) -> tuple[Gaussian, ...]:
    return tuple(operand for operand in operands if isinstance(operand, Gaussian))


def _random_input(x: Gaussian, w: Any, b: Any, mean: Array) -> Gaussian:
    x = _features_of(x)
    mean_w, full = _mean(w), x.propagation.full
    noise = _noise(x.variance + squared(x.mean), w, b)
    each = mean_w[..., None, :, :] if len(mean_w.shape) > 2 and len(x.shape) > 1 else mean_w

    def joint() -> Array:
        covariance = _mapped(x, each)
        return covariance if noise is None else covariance + diagonal_matrix(noise)

    variance = None if full and x.has_covariance else _variance(x, mean_w, each, noise)
    return Gaussian(
        mean,
        Spread(variance, joint if full else None, joint),
        LinearMap((x, *_random(w, b)), b, x, each, mixes=not full),
        ties=Ties.FEATURES if x.apart and not _random(w, b) else Ties.ALL,
        propagation=x.propagation,
    )


def _features_of(x: Gaussian) -> Gaussian:
    """Contracting another axis than the features' mixes elements of the batch.

    Where these are independent of each other, as the units of a layer that maps columns, they are
    features without a covariance, and what were features is a batch.
    """
    if x.axis == -1:
        return x
    kept = x.independent or (x.apart and _has_independent_sites(x))
    if not kept and x.shape[-1] > 1:
        if x.propagation.full and (vector := as_vector(x)) is not None:
            return vector
        warn_dropped(x, "a linear map over an axis of the batch")
    return with_trailing_features(x)


def _has_independent_sites(value: Gaussian) -> bool:
    """Whether every covariance of a value comes from a map, and none from the user."""
    return all(part.step.inputs or part.independent for part in ancestors(value))


def _mapped(x: Gaussian, matrix: Array) -> Array:
    """M C Mᵀ, without forming C where the components of x are independent."""
    if x.has_covariance:
        return contract(matrix, x.covariance)
    return (matrix * x.variance[..., None, :]) @ matrix.mT


def _variance(x: Gaussian, matrix: Array, each: Array, noise: Array | None) -> Array:
    if x.has_covariance:  # a softmax has one in diagonal mode too
        variance = namespace(each).sum((each @ x.covariance) * each, axis=-1)
    else:
        variance = affine_squared(x.variance, matrix)
    return variance if noise is None else variance + noise


def _check(x: Any, w: Any, b: Any) -> None:
    random = [operand for operand in (x, w, b) if isinstance(operand, Gaussian)]
    shape_x, shape_w = tuple(x.shape), tuple(w.shape)
    if len(shape_w) < 2 or not shape_x or shape_x[-1] != shape_w[-1]:
        raise UnsupportedMoments(
            f"a linear map of inputs of shape {shape_x} with a weight of shape {shape_w} is not "
            "supported: weights are [out, in] and inputs [..., in]",
            sites=frozenset().union(*(operand.sites for operand in random)),
            remedy="apply one matrix, to inputs whose trailing axis is the contracted one",
        )
    refuse_shared("the inputs, the weight and the bias of a linear map", random)
    refuse_tied("the weight of a linear map", w, "map")


def map_features(value: Gaussian, matrix: Array) -> Gaussian:
    """Multiply the features, wherever their axis is, by a certain matrix.

    Args:
        value: a value with features d.
        matrix: [e, d].
    """
    last, place = len(value.shape) - 1, len(value.shape) + (value.axis or 0)
    return move_axis(linear(move_axis(value, place, last), matrix), last, place)


def matmul(left: Any, right: Any) -> Value:
    """left @ right for matrices and vectors in either order, at least one operand random.

    The random operand that carries covariance, or the one computed from other values, is taken
    as the input and the other as the weight.

    Args:
        left: value or array, [..., n, k], or [k].
        right: value or array, [..., k, m], or [k].

    Raises:
        UnsupportedMoments: if neither operand is a matrix or vector, or see :func:`linear`.
    """
    x, y = _matched(left), _matched(right)
    if len(y.shape) == 1:
        return _times_vector(x, y)
    if len(x.shape) == 1:
        return _times_vector(swap_last(y), x)
    if _is_input(x) and _is_input(y):
        raise UnsupportedMoments(
            "a product of two matrices of which neither has independent components",
            sites=x.sites | y.sites,
            remedy="use latent weights with independent components on one side; for attention, "
            "draw the sites of its queries and keys by naming them in sample_sites=",
        )
    if not (_is_input(y) if len(y.shape) > 2 else _maps_columns(x, y)):
        return linear(x, swap_last(y))
    return swap_last(linear(swap_last(y), x))


def _maps_columns(x: Any, y: Any) -> bool:
    """Whether x @ y is a weight times data in columns, rather than data in rows times a weight."""
    if len(x.shape) != 2 or _is_input(x):
        return False
    latent = isinstance(x, Gaussian) and x.step.weight
    return _is_input(y) or (latent and not isinstance(y, Gaussian))


def _is_input(operand: Any) -> bool:
    """Whether a value is an input rather than a weight: its components are dependent, or may be."""
    return isinstance(operand, Gaussian) and (operand.has_covariance or not operand.independent)


def _times_vector(x: Any, vector: Any) -> Value:
    """x [..., k] times a vector [k]."""
    if not isinstance(vector, Gaussian):
        return reshape(linear(x, vector[None, :]), x.shape[:-1])
    dependent = _is_input(vector) or (isinstance(x, Gaussian) and share_sites(x, vector))
    if len(x.shape) == 1 and dependent:
        products = multiply(x, vector).gaussian()
        return _times_vector(products, namespace(products.mean).ones_like(products.mean))
    if _is_input(vector) and (not isinstance(x, Gaussian) or x.independent):
        return linear(vector, x)
    weight = reshape(vector, (1, *vector.shape))
    _check(x, weight, None)
    if isinstance(x, Gaussian) and x.propagation.replacement("linear") is not None:
        return reshape(linear(x, weight), x.shape[:-1])
    return _scalar_products(x, vector)


def _scalar_products(x: Any, vector: Gaussian) -> Gaussian:
    """Scalar products with a latent vector, whose Jacobian E[x] ties all of them together."""
    x = _features_of(x) if isinstance(x, Gaussian) else x
    vector, mean_x = _features_of(vector), _mean(x)
    variance = (mean_x * mean_x) @ vector.variance
    mixes = not vector.propagation.full
    step = LinearMap((vector,), None, vector, mean_x[..., None, :], mixes)
    if isinstance(x, Gaussian):  # products that share x and the vector are dependent in both
        row = vector.mean[None, :]
        step = LinearMap((vector, x), None, x, row, mixes)
        variance = variance + _mapped(x, row)[..., 0, 0] + x.variance @ vector.variance
    mean = mean_x @ vector.mean
    return Gaussian(mean, Spread(variance), step, axis=None, propagation=vector.propagation)
