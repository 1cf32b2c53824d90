"""Products of two operands, at least one random: of matrices and vectors, and Einstein sums.

Most of this file decides which operand is the input of a linear map and which its weight; the map
itself is that of :mod:`.maps`. Structured operands (diagonal, Cholesky) come first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments, sites_of
from moment_calculus.numerics.arrays import Array, namespace, squared_products
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.operations.linear.checks import (
    check_dependence,
    check_shapes,
    has_dependent_elements,
)
from moment_calculus.operations.linear.correlations import factor_of
from moment_calculus.operations.linear.dependent import dependent_product
from moment_calculus.operations.linear.factorisation import structured_product
from moment_calculus.operations.linear.links import AddedCovariance, Link, links_of
from moment_calculus.operations.linear.maps import (
    LINEAR,
    LinearMap,
    features_of,
    linear,
    mapped_covariance,
)
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.moves import permute, swap_last
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.values import Gaussian, PendingWeight, Spread, Value, share_sites
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.gaussian import is_weight
from moment_calculus.values.protocols import DataStep
from moment_calculus.values.spread import overlap
from moment_calculus.values.step import entries_of

__all__ = ["einsum", "matmul"]


def matmul(left: Any, right: Any) -> Value:
    """Return left @ right for matrices and vectors in either order, at least one of them random.

    A random operand with covariances, or one computed from other values, is the input of
    a linear map; the other operand is its weight.
    """
    if isinstance(left, PendingWeight) or isinstance(right, PendingWeight):
        return _times_pending(left, right)
    x, y = [part.gaussian() if hasattr(part, "gaussian") else part for part in (left, right)]
    if (product := structured_product(x, y)) is not None:
        return product
    if len(y.shape) == 1 or len(x.shape) == 1:
        return _times_vector(x, y) if len(y.shape) == 1 else _times_vector(swap_last(y), x)
    if links_of(y) is not None or (has_dependent_elements(y) and _may_be_mapped_jointly(x)):
        return linear(x, swap_last(y))
    if links_of(x) is not None or (has_dependent_elements(x) and _is_input(y)):
        return swap_last(linear(swap_last(y), x))
    x_is_input, y_is_input = _is_input(x), _is_input(y)
    if x_is_input and y_is_input:
        return dependent_product(x, y)
    if len(y.shape) <= 2:  # a weight times columns of data, not rows of data times a weight
        latent = isinstance(x, Gaussian) and is_weight(x) and not isinstance(y, Gaussian)
        y_is_input = len(x.shape) == 2 and not x_is_input and (y_is_input or latent)
    return swap_last(linear(swap_last(y), x)) if y_is_input else linear(x, swap_last(y))


def _times_pending(left: Any, right: Any) -> Any:
    """Multiply by a pending weight on either side; a pending vector is a map with one output."""
    if isinstance(right, PendingWeight):
        if len(right.shape) > 1:
            return linear(left, swap_last(right))
        return reshape(linear(left, right.as_row()), left.shape[:-1])
    if len(left.shape) == 1:  # the columns of the other operand are the rows of inputs
        rows = swap_last(right) if len(right.shape) > 1 else right
        return reshape(linear(rows, left.as_row()), rows.shape[:-1])
    if len(right.shape) == 1:
        return linear(right, left)
    return swap_last(linear(swap_last(right), left))


def is_data(value: Gaussian) -> bool:
    """Whether a value is data with noise, at most rearranged or scaled."""
    entries = entries_of(value)
    return isinstance((value.origin if entries is None else entries.site).step, DataStep)


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
        return _map_dependent_vector(x, vector)
    return _times_latent_vector(x, vector)


def _map_dependent_vector(x: Any, vector: Gaussian) -> Value:
    """Map a dependent vector by a matrix; many rows of data give a batch of scalars."""
    rows = not isinstance(x, Gaussian) and len(x.shape) > 1 and x.shape[-2] > x.shape[-1]
    if rows and not any(is_data(part) for part in ancestors(vector)):
        return _scalar_products(x, vector)
    return linear(vector, x)


def _times_latent_vector(x: Any, vector: Any) -> Value:
    """Multiply x [..., k] by a latent vector [k]."""
    weight = reshape(vector, (1, *vector.shape))
    check_shapes(x, weight, None)
    if has_dependent_elements(weight):
        return reshape(linear(x, weight), x.shape[:-1])
    check_dependence(x, weight, None)
    if isinstance(x, Gaussian) and x.propagation.replacement(LINEAR) is not None:
        return reshape(linear(x, weight), x.shape[:-1])
    return _scalar_products(x, vector)


def _scalar_products(x: Any, vector: Gaussian) -> Gaussian:
    """Return scalar products of x with a latent vector, all of which depend on the vector."""
    x = features_of(x) if isinstance(x, Gaussian) else x
    vector = features_of(vector)
    mean_x = x.mean if isinstance(x, Gaussian) else x
    variance = _product_variance(mean_x, x, vector)
    assumes_independence = not vector.uses_covariance
    step = LinearMap((vector,), None, vector, mean_x[..., None, :], assumes_independence)
    if isinstance(x, Gaussian):  # the products depend on each other by x and by the vector
        row = vector.mean[None, :]
        step = LinearMap(
            (vector, x),
            None,
            x,
            row,
            assumes_independence,
            random_matrix=vector,
            expected_inputs=x.mean,
        )
        variance = variance + mapped_covariance(x, row)[..., 0, 0] + x.variance @ vector.variance
    mean = mean_x @ vector.mean
    return Gaussian(mean, Spread(variance), step, axis=None, propagation=vector.propagation)


def _row_links(vector: Gaussian) -> tuple[Link, ...] | None:
    """Return the links of a vector, taken as a matrix of one row."""
    return None if vector.independent else links_of(reshape(vector, (1, *vector.shape)))


def _product_variance(mean_x: Array, x: Any, vector: Gaussian) -> Array:
    """Return the variance that a vector, and the covariances along it, add to scalar products."""
    links = _row_links(vector)
    if vector.has_covariance and links is None:
        return namespace(mean_x).sum((mean_x @ vector.covariance) * mean_x, axis=-1)
    noise = AddedCovariance(squared_products(mean_x, vector.variance)[..., None])
    return noise.with_links(links or (), x).variance[..., 0]


def einsum(equation: str, *operands: Any) -> Any:
    """Return the Einstein sum of one or two operands, at least one of them random.

    It is a permutation, a sum, an elementwise or outer product, or a (batched) matrix
    product, and as exact as these are. Ellipses and repeated letters in one operand raise
    UnsupportedMoments.
    """
    letters, result = _parse(equation, operands)
    if any(isinstance(operand, PendingWeight) for operand in operands):
        return _contract_pending(letters, operands, result)
    parts = [
        _sum_unused_axes(operand, names, set("".join([*letters[:i], *letters[i + 1 :], result])))
        for i, (operand, names) in enumerate(zip(operands, letters, strict=True))
    ]
    if len(parts) == 1:
        value, names = parts[0]
        return permute(value, [names.index(name) for name in result])
    return _combine_two(parts[0], parts[1], result)


def _contract_pending(letters: list[str], operands: Sequence[Any], result: str) -> Any:
    """Contract a pending weight with its inputs as a linear map; raise for other contractions."""
    index = next(i for i, operand in enumerate(operands) if isinstance(operand, PendingWeight))
    weight, names_w = operands[index], letters[index]
    rest = list(zip(operands, letters, strict=True))
    del rest[index]
    inputs = [n for n in names_w if rest and n in rest[0][1] and n not in result]
    outputs = [n for n in names_w if n in result and not (rest and n in rest[0][1])]
    plain = len(inputs) == 1 and len(outputs) + 1 == len(names_w) <= 2
    if not plain or not set(rest[0][1]) <= {*result, *inputs}:
        return weight.gaussian()
    (x, names_x), shared = rest[0], inputs[0]
    rows = [n for n in names_x if n != shared]
    x = permute(x, [names_x.index(n) for n in (*rows, shared)])
    matrix = weight.as_row() if not outputs else weight
    if outputs:
        matrix = permute(weight, [names_w.index(n) for n in (*outputs, shared)])
    product = linear(x, matrix)
    product_axes = [*rows, *outputs]
    product = product if outputs else reshape(product, product.shape[:-1])
    return permute(product, [product_axes.index(n) for n in result])


def _parse(equation: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    compact = equation.replace(" ", "")
    inputs, arrow, result = compact.partition("->")
    letters = inputs.split(",")
    if not arrow:
        every = "".join(letters)
        result = "".join(sorted(name for name in set(every) if every.count(name) == 1))
    plain = all(len(set(names)) == len(names) for names in letters)
    if "." in compact or not plain or len(operands) > 2:
        raise UnsupportedMoments(
            f"the Einstein sum '{equation}' of {len(operands)} operands",
            sites=sites_of(*operands),
            remedy="sum one or two operands at a time, name every axis, and no axis twice in one "
            "operand, as in 'bi,oi->bo' or 'bij,bjk->bik'" + OR_DRAW,
        )
    return letters, result


def _sum_unused_axes(operand: Any, names: str, needed: set[str]) -> tuple[Any, str]:
    """Sum an operand over the axes that occur nowhere else."""
    summed_axes = [axis for axis, name in enumerate(names) if name not in needed]
    if not summed_axes:
        return operand, names
    return reduce_sum(operand, summed_axes), "".join(name for name in names if name in needed)


def _combine_two(left: tuple[Any, str], right: tuple[Any, str], result: str) -> Any:
    shared = [name for name in left[1] if name in right[1] and name not in result]
    if not shared:
        return multiply(_align_axes(*left, result), _align_axes(*right, result))
    if _is_weight(left[0], right[0]):
        left, right = right, left
    return _contract(left, right, "".join(shared), result)


def _align_axes(operand: Any, names: str, result: str) -> Any:
    """Permute an operand to the axes of the result, with size one for missing axes."""
    order = [names.index(name) for name in result if name in names]
    ordered = permute(operand, order)
    sizes = iter(ordered.shape)
    return reshape(ordered, [next(sizes) if name in names else 1 for name in result])


def _is_weight(operand: Any, other: Any) -> bool:
    """Whether the first operand is the weight of a linear map whose input is the other one."""
    if not is_value(operand):
        return is_value(other) and not _is_matrix(other.gaussian())
    if not is_value(other):
        return _is_matrix(operand.gaussian())
    return _has_independent_components(operand) and not _has_independent_components(other)


def _is_matrix(value: Gaussian) -> bool:
    return is_weight(value) or has_dependent_elements(value)


def _has_independent_components(value: Any) -> bool:
    gaussian: Gaussian = value.gaussian()
    return gaussian.independent and not gaussian.has_covariance and not is_data(gaussian)


def _contract(left: tuple[Any, str], right: tuple[Any, str], shared: str, result: str) -> Any:
    (x, names_x), (y, names_y) = left, right
    batch = "".join(name for name in result if name in names_x and name in names_y)
    rows = "".join(name for name in names_x if name not in shared + batch)
    columns = "".join(name for name in result if name in names_y and name not in batch)
    size = dict(zip(names_x, x.shape, strict=True)) | dict(zip(names_y, y.shape, strict=True))
    random = is_value(x) and is_value(y)
    if random and batch and not rows + columns and not overlap(x, y):
        return _multiply_rows(left, right, shared, result)
    if not batch and columns and factor_of(x) is not None:
        return _apply_factor(x, y, names_y, rows, shared, columns, result)
    lead = [size[name] for name in columns[:-1]]
    if is_value(x) and math.prod(lead) > 1:  # the same input for each of a batch of maps
        wide = broadcast(reshape(x, (*[1] * len(lead), *x.shape)), (*lead, *x.shape))
        return _contract((wide, columns[:-1] + names_x), (y, names_y), shared, result)
    matrix_x = _matrix(x, names_x, batch, rows if batch else None, rows, shared, size)
    matrix_y = _matrix(y, names_y, batch, shared, shared, columns, size)
    if not columns and not batch:
        matrix_y = reshape(matrix_y, matrix_y.shape[:1])
    product = matmul(matrix_x, matrix_y)
    product_axes = batch + rows + columns
    return permute(
        reshape(product, [size[n] for n in product_axes]), [product_axes.index(n) for n in result]
    )


def _apply_factor(x, y, names_y, rows, shared, columns, result):
    """Return S y of one random Cholesky factor S and a batch of matrices y."""
    order = columns[:-1] + shared + columns[-1]
    product = matmul(x, permute(y, [names_y.index(name) for name in order]))
    product_axes = columns[:-1] + rows + columns[-1]
    return permute(product, [product_axes.index(name) for name in result])


def _multiply_rows(left: tuple[Any, str], right: tuple[Any, str], shared: str, result: str) -> Any:
    """Return the scalar products of two batches of independent random vectors."""
    product = multiply(_align_axes(*left, result + shared), _align_axes(*right, result + shared))
    return reduce_sum(product, [len(result) + i for i in range(len(shared))])


def _matrix(operand, names, batch, merged, rows, columns, size):
    """Return the operand as [batch, rows, columns]; rows that are not merged stay several axes."""
    order = [names.index(name) for name in batch + rows + columns]
    middle = [size[name] for name in rows] if merged is None else [_count(merged, size)]
    shape = [size[name] for name in batch] + middle + [_count(columns, size)]
    return reshape(permute(operand, order), shape)


def _count(letters: str, size: dict[str, int]) -> int:
    return math.prod(size[name] for name in letters)
