"""Products of two matrices, or of a matrix and a vector, at least one of them random."""

from __future__ import annotations

from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.matrices import squared_products
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.dropout.noise import is_data
from moment_calculus.operations.elementwise.arithmetic import multiply
from moment_calculus.operations.linear.dependent_weights import has_dependent_elements
from moment_calculus.operations.linear.inputs import features_of, mapped_covariance
from moment_calculus.operations.linear.maps import LinearMap, linear
from moment_calculus.operations.linear.tridiagonal import AddedCovariance, Link, links_of
from moment_calculus.operations.linear.weight_checks import check_dependence, check_shapes
from moment_calculus.operations.shapes.moves import swap_last
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian, Spread, Value, share_sites
from moment_calculus.values.ancestry import ancestors


def matmul(left: Any, right: Any) -> Value:
    """Return left @ right for matrices and vectors in either order, at least one of them random.

    A random operand with covariances, or one computed from other values, is the input of
    a linear map; the other operand is its weight.
    """
    if isinstance(left, MaskedWeight) or isinstance(right, MaskedWeight):
        return _masked(left, right)
    x, y = (o.gaussian() if hasattr(o, "gaussian") else o for o in (left, right))
    if len(y.shape) == 1:
        return _times_vector(x, y)
    if len(x.shape) == 1:
        return _times_vector(swap_last(y), x)
    if links_of(y) is not None or (has_dependent_elements(y) and _may_be_mapped_jointly(x)):
        return linear(x, swap_last(y))
    if links_of(x) is not None or (has_dependent_elements(x) and _is_input(y)):
        return swap_last(linear(swap_last(y), x))
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


def _masked(left: Any, right: Any) -> Any:
    """Multiply by a masked weight on either side; a masked vector is a map with one output."""
    if isinstance(right, MaskedWeight):
        if len(right.shape) > 1:
            return linear(left, swap_last(right))
        return reshape(linear(left, right.as_row()), left.shape[:-1])
    if len(left.shape) == 1:  # the columns of the other operand are the rows of inputs
        rows = swap_last(right) if len(right.shape) > 1 else right
        return reshape(linear(rows, left.as_row()), rows.shape[:-1])
    if len(right.shape) == 1:
        return linear(right, left)
    return swap_last(linear(swap_last(right), left))


def _maps_columns(x: Any, y: Any) -> bool:
    """Whether x @ y is a weight times columns of data, not rows of data times a weight."""
    if len(x.shape) != 2 or _is_input(x):
        return False
    latent = isinstance(x, Gaussian) and x.step.weight
    return _is_input(y) or (latent and not isinstance(y, Gaussian))


def _may_be_mapped_jointly(operand: Any) -> bool:
    """Whether an operand may be the input of a weight with dependent components."""
    return not isinstance(operand, Gaussian) or _is_input(operand)


def _is_input(operand: Any) -> bool:
    """Whether a value is data or may have dependent components, so that it is not a weight."""
    if not isinstance(operand, Gaussian):
        return False
    return operand.has_covariance or not operand.independent or is_data(operand)


def _times_vector(x: Any, vector: Any) -> Value:
    """Multiply x [..., k] by a vector [k]."""
    if links_of(x) is not None:
        return linear(vector, x)
    if has_dependent_elements(x) and _may_be_mapped_jointly(vector):
        return reshape(linear(reshape(vector, (1, *vector.shape)), x), x.shape[:1])
    if not isinstance(vector, Gaussian):
        return reshape(linear(x, vector[None, :]), x.shape[:-1])
    shared = isinstance(x, Gaussian) and share_sites(x, vector)
    if not shared and _row_links(vector) is not None:
        return _scalar_products(x, vector)
    dependent = _is_input(vector) or shared
    if len(x.shape) == 1 and dependent:
        products = multiply(x, vector).gaussian()
        return _times_vector(products, namespace(products.mean).ones_like(products.mean))
    if _is_input(vector) and (not isinstance(x, Gaussian) or x.independent):
        return _of_input(x, vector)
    return _by_weights(x, vector)


def _of_input(x: Any, vector: Gaussian) -> Value:
    """Map a dependent vector by a matrix; many rows of data give a batch of scalars."""
    rows = not isinstance(x, Gaussian) and len(x.shape) > 1 and x.shape[-2] > x.shape[-1]
    if rows and not any(is_data(part) for part in ancestors(vector)):
        return _scalar_products(x, vector)
    return linear(vector, x)


def _by_weights(x: Any, vector: Any) -> Value:
    """Multiply x [..., k] by a latent vector [k]."""
    weight = reshape(vector, (1, *vector.shape))
    check_shapes(x, weight, None)
    if has_dependent_elements(weight):
        return reshape(linear(x, weight), x.shape[:-1])
    check_dependence(x, weight, None)
    if isinstance(x, Gaussian) and x.propagation.rule_for("linear") is not None:
        return reshape(linear(x, weight), x.shape[:-1])
    return _scalar_products(x, vector)


def _scalar_products(x: Any, vector: Gaussian) -> Gaussian:
    """Return scalar products of x with a latent vector, all of which depend on the vector."""
    x = features_of(x) if isinstance(x, Gaussian) else x
    vector = features_of(vector)
    mean_x = x.mean if isinstance(x, Gaussian) else x
    variance = _of_products(mean_x, x, vector)
    assumes_independence = not vector.uses_covariance
    step = LinearMap((vector,), None, vector, mean_x[..., None, :], assumes_independence)
    if isinstance(x, Gaussian):  # the products depend on each other by x and by the vector
        row = vector.mean[None, :]
        step = LinearMap((vector, x), None, x, row, assumes_independence)
        variance = variance + mapped_covariance(x, row)[..., 0, 0] + x.variance @ vector.variance
    mean = mean_x @ vector.mean
    return Gaussian(mean, Spread(variance), step, axis=None, propagation=vector.propagation)


def _row_links(vector: Gaussian) -> tuple[Link, ...] | None:
    """Return the links of a vector, taken as a matrix of one row."""
    return None if vector.independent else links_of(reshape(vector, (1, *vector.shape)))


def _of_products(mean_x: Array, x: Any, vector: Gaussian) -> Array:
    """Return the variance that a vector, and the covariances along it, add to scalar products."""
    links = _row_links(vector)
    if vector.has_covariance and links is None:
        return namespace(mean_x).sum((mean_x @ vector.covariance) * mean_x, axis=-1)
    noise = AddedCovariance(squared_products(mean_x, vector.variance)[..., None])
    return noise.with_links(links or (), x).variance[..., 0]
