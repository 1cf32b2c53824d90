"""Einstein sums of one or two operands, as the maps, sums and products that they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.dropout.noise import is_data
from moment_calculus.operations.elementwise.arithmetic import is_value, multiply
from moment_calculus.operations.linear.dependent_weights import has_dependent_elements
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import matmul
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.values import Gaussian
from moment_calculus.values.support import overlap


def einsum(equation: str, *operands: Any) -> Any:
    """Return the Einstein sum of one or two operands, at least one of them random.

    It is a permutation, a sum, an elementwise or outer product, or a (batched) matrix
    product, and as exact as these are. Ellipses and repeated letters in one operand raise
    UnsupportedMoments.
    """
    letters, result = _parsed(equation, operands)
    if any(isinstance(operand, MaskedWeight) for operand in operands):
        return _masked(letters, operands, result)
    parts = [
        _without(operand, names, set("".join([*letters[:i], *letters[i + 1 :], result])))
        for i, (operand, names) in enumerate(zip(operands, letters, strict=True))
    ]
    if len(parts) == 1:
        value, names = parts[0]
        return permute(value, [names.index(name) for name in result])
    return _pair(parts[0], parts[1], result)


def _masked(letters: list[str], operands: Sequence[Any], result: str) -> Any:
    """Contract a masked weight with its inputs as a linear map; raise for other contractions."""
    place = next(i for i, operand in enumerate(operands) if isinstance(operand, MaskedWeight))
    weight, names_w = operands[place], letters[place]
    rest = list(zip(operands, letters, strict=True))
    del rest[place]
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
    made = [*rows, *outputs]
    product = product if outputs else reshape(product, product.shape[:-1])
    return permute(product, [made.index(n) for n in result])


def _parsed(equation: str, operands: Sequence[Any]) -> tuple[list[str], str]:
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
            sites=frozenset().union(*(getattr(o, "sites", frozenset()) for o in operands)),
            remedy="sum one or two operands at a time, name every axis, and no axis twice in one "
            "operand, as in 'bi,oi->bo' or 'bij,bjk->bik'" + OR_DRAW,
        )
    return letters, result


def _without(operand: Any, names: str, needed: set[str]) -> tuple[Any, str]:
    """Sum an operand over the axes that occur nowhere else."""
    summed_axes = [axis for axis, name in enumerate(names) if name not in needed]
    if not summed_axes:
        return operand, names
    return reduce_sum(operand, summed_axes), "".join(name for name in names if name in needed)


def _pair(left: tuple[Any, str], right: tuple[Any, str], result: str) -> Any:
    shared = [name for name in left[1] if name in right[1] and name not in result]
    if not shared:
        return multiply(_aligned(*left, result), _aligned(*right, result))
    if _is_weight(left[0], right[0]):
        left, right = right, left
    return _contracted(left, right, "".join(shared), result)


def _aligned(operand: Any, names: str, result: str) -> Any:
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
    return value.step.weight or has_dependent_elements(value)


def _has_independent_components(value: Any) -> bool:
    gaussian: Gaussian = value.gaussian()
    return gaussian.independent and not gaussian.has_covariance and not is_data(gaussian)


def _contracted(left: tuple[Any, str], right: tuple[Any, str], shared: str, result: str) -> Any:
    (x, names_x), (y, names_y) = left, right
    batch = "".join(name for name in result if name in names_x and name in names_y)
    rows = "".join(name for name in names_x if name not in shared + batch)
    columns = "".join(name for name in result if name in names_y and name not in batch)
    size = dict(zip(names_x, x.shape, strict=True)) | dict(zip(names_y, y.shape, strict=True))
    random = is_value(x) and is_value(y)
    if random and batch and not rows + columns and not overlap(x, y):
        return _scalar_products(left, right, shared, result)
    lead = [size[name] for name in columns[:-1]]
    if is_value(x) and math.prod(lead) > 1:  # the same input for each of a batch of maps
        wide = broadcast(reshape(x, (*[1] * len(lead), *x.shape)), (*lead, *x.shape))
        return _contracted((wide, columns[:-1] + names_x), (y, names_y), shared, result)
    matrix_x = _matrix(x, names_x, batch, rows if batch else None, rows, shared, size)
    matrix_y = _matrix(y, names_y, batch, shared, shared, columns, size)
    if not columns and not batch:
        matrix_y = reshape(matrix_y, matrix_y.shape[:1])
    product = matmul(matrix_x, matrix_y)
    made = batch + rows + columns
    return permute(reshape(product, [size[n] for n in made]), [made.index(n) for n in result])


def _scalar_products(
    left: tuple[Any, str], right: tuple[Any, str], shared: str, result: str
) -> Any:
    """Return the scalar products of two batches of independent random vectors."""
    product = multiply(_aligned(*left, result + shared), _aligned(*right, result + shared))
    return reduce_sum(product, [len(result) + i for i in range(len(shared))])


def _matrix(operand, names, batch, merged, rows, columns, size):
    """Return the operand as [batch, rows, columns]; rows that are not merged stay several axes."""
    order = [names.index(name) for name in batch + rows + columns]
    middle = [size[name] for name in rows] if merged is None else [_count(merged, size)]
    shape = [size[name] for name in batch] + middle + [_count(columns, size)]
    return reshape(permute(operand, order), shape)


def _count(letters: str, size: dict[str, int]) -> int:
    return math.prod(size[name] for name in letters)
