"""Rows of layers: linear maps, arithmetic, shapes."""

import torch
from torch.nn.functional import linear

from moment_calculus.numerics.arrays import constants, namespace
from moment_calculus.operations.elementwise.choices import where
from moment_calculus.operations.elementwise.products import divide, multiply
from moment_calculus.operations.elementwise.sums import add, subtract
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.linear.maps import linear as gaussian_linear
from moment_calculus.operations.linear.matrices import einsum, matmul
from moment_calculus.operations.linear.reductions import (
    cumulative_sum,
    difference,
    product,
    reduce_mean,
    reduce_sum,
)
from moment_calculus.operations.shapes import permute, reshape, swap_last
from moment_calculus.operations.shapes.concatenation import concatenate, stack
from moment_calculus.operations.shapes.indexing import gather, index, take, unstack
from moment_calculus.values.propagation import Propagation
from tests.cases import row_functions as functions
from tests.cases.operand_kinds import LayerCase, Operand
from tests.cases.row_functions import fixed

CHOSEN, CHEQUERED = [1, 0, 1], torch.tensor([True, False])
DIAGONAL = Propagation(covariance="diagonal")

X = WEIGHT = Operand((2, 2))
JOINT = Operand((2, 2), "correlated")
CERTAIN = Operand((2, 2), "certain")
BIAS = VECTOR = Operand((2,))
CONSTANT = Operand((2,), "certain")


def cycled(value):
    """A permutation of a value or tensor that moves the features to the front."""
    order = (2, 0, 1)
    return value.permute(order) if isinstance(value, torch.Tensor) else permute(value, order)


def einstein(equation):
    """The rule and the plain function of an Einstein sum."""
    return (
        lambda *operands: einsum(equation, *operands),
        lambda *operands: torch.einsum(equation, *operands),
    )


def chequered(array):
    """A fixed mask of the trailing axis."""
    return constants([1.0, 0.0], array) > 0 * array


def first_or_last(array):
    """A fixed choice of two features for each row."""
    return namespace(array).asarray([[0, 0], [1, 0]])


LAYERS = [
    LayerCase("linear", (X, WEIGHT, BIAS), gaussian_linear, linear),
    LayerCase("linear_joint_input", (JOINT, WEIGHT, BIAS), gaussian_linear, linear),
    LayerCase("linear_certain_input", (CERTAIN, WEIGHT, BIAS), gaussian_linear, linear),
    LayerCase("linear_certain_weight", (JOINT, CERTAIN, BIAS), gaussian_linear, linear),
    LayerCase("linear_certain_bias", (X, WEIGHT, CONSTANT), gaussian_linear, linear),
    LayerCase("linear_without_bias", (JOINT, WEIGHT), gaussian_linear, linear),
    LayerCase("linear_diagonal", (X, WEIGHT, BIAS), gaussian_linear, linear, propagation=DIAGONAL),
    LayerCase(
        "linear_chain",
        (Operand((1, 2), "correlated"), WEIGHT, BIAS, Operand((1, 2))),
        functions.chain,
        lambda x, w, b, v: linear(linear(x, w, b), v),
    ),
    LayerCase("matmul_random_right", (JOINT, WEIGHT), matmul, torch.matmul),
    LayerCase("matmul_certain_right", (JOINT, CERTAIN), matmul, torch.matmul),
    LayerCase("matmul_random_left", (WEIGHT, CERTAIN), matmul, torch.matmul, batched=()),
    LayerCase("matmul_certain_left", (CERTAIN, WEIGHT), matmul, torch.matmul),
    LayerCase("matrix_times_vector", (JOINT, VECTOR), matmul, torch.matmul),
    LayerCase("certain_matrix_times_vector", (CERTAIN, VECTOR), matmul, torch.matmul),
    LayerCase("matrix_times_certain_vector", (JOINT, CONSTANT), matmul, torch.matmul),
    LayerCase("certain_vector_times_matrix", (CONSTANT, WEIGHT), matmul, torch.matmul, batched=()),
    LayerCase("add", (JOINT, X), add, torch.add, batched=(0, 1)),
    LayerCase("add_bias", (JOINT, BIAS), add, torch.add),
    LayerCase("subtract", (JOINT, X), subtract, torch.subtract, batched=(0, 1)),
    LayerCase("subtract_from_certain", (CERTAIN, JOINT), subtract, torch.subtract, batched=(0, 1)),
    LayerCase("multiply", (JOINT, X), multiply, torch.multiply, batched=(0, 1)),
    LayerCase("multiply_certain", (JOINT, CERTAIN), multiply, torch.multiply, batched=(0, 1)),
    LayerCase("multiply_diagonal", (X, X), multiply, torch.multiply, (0, 1), DIAGONAL),
    LayerCase("divide", (JOINT, Operand((2, 2), "positive")), divide, torch.divide, batched=(0, 1)),
    LayerCase("affine", (JOINT,), lambda x: scale_shift(x, -2.0, 1.5), lambda x: 1.5 - 2 * x),
    LayerCase("square", (JOINT,), lambda x: multiply(x, x), torch.square),
    LayerCase(
        "product_of_dependent", (JOINT,), lambda x: multiply(x, fixed(x)), lambda x: x * fixed(x)
    ),
    LayerCase(
        "difference_of_dependent", (JOINT,), lambda x: subtract(x, fixed(x)), lambda x: x - fixed(x)
    ),
    LayerCase(
        "residual",
        (JOINT, WEIGHT),
        lambda x, w: add(x, gaussian_linear(x, w)),
        lambda x, w: x + linear(x, w),
    ),
    LayerCase(
        "residual_diagonal",
        (X, WEIGHT),
        lambda x, w: add(x, gaussian_linear(x, w)),
        lambda x, w: x + linear(x, w),
        propagation=DIAGONAL,
    ),
    LayerCase(
        "concatenate",
        (JOINT, X),
        lambda x, y: concatenate([x, fixed(x), y], -1),
        lambda x, y: torch.cat([x, fixed(x), y], -1),
        batched=(0, 1),
    ),
    LayerCase(
        "slices_of_one_output",
        (JOINT, CERTAIN),
        lambda x, w: multiply(*functions.halves(gaussian_linear(x, w), index)),
        lambda x, w: torch.multiply(*functions.halves(linear(x, w))),
    ),
    LayerCase(
        "reshape_keeps_features",
        (JOINT,),
        lambda x: reshape(x, (x.shape[0], 1, 2)),
        lambda x: x.reshape(-1, 1, 2),
    ),
    LayerCase("select", (JOINT,), lambda x: index(x, (..., 1)), lambda x: x[..., 1]),
    LayerCase(
        "unstack",
        (JOINT,),
        lambda x: multiply(*unstack(x, 1)),
        lambda x: torch.multiply(*x.unbind(-1)),
    ),
    LayerCase("transpose", (JOINT,), swap_last, lambda x: x.mT, batched=()),
    LayerCase(
        "permute_and_map",
        (Operand((2, 1, 2), "correlated"),),
        lambda x: fixed(permute(permute(x, (2, 0, 1)), (1, 2, 0))),
        lambda x: fixed(x.permute(2, 0, 1).permute(1, 2, 0)),
    ),
    LayerCase("permute", (Operand((1, 2, 2), "correlated"),), cycled, cycled, batched=()),
    LayerCase(
        "batch_of_weights",
        (Operand((2, 1, 2), "correlated"), Operand((2, 1, 2))),
        gaussian_linear,
        lambda x, w: x @ w.mT,
        batched=(0, 1),
    ),
    LayerCase(
        "batch_of_certain_matrices",
        (Operand((2, 1, 2), "correlated"), Operand((2, 2, 2), "certain")),
        matmul,
        torch.matmul,
        batched=(0, 1),
    ),
    LayerCase(
        "batch_of_weights_certain_input",
        (Operand((2, 1, 2), "certain"), Operand((2, 2, 2))),
        matmul,
        torch.matmul,
        batched=(0, 1),
    ),
    LayerCase("einsum_linear", (JOINT, WEIGHT), *einstein("bi,oi->bo")),
    LayerCase("einsum_weight_first", (CERTAIN, JOINT), *einstein("oi,bi->bo"), batched=(1,)),
    LayerCase("einsum_elementwise", (JOINT, WEIGHT), *einstein("bi,bi->bi"), batched=(0, 1)),
    LayerCase("einsum_outer", (JOINT, VECTOR), *einstein("bi,o->boi")),
    LayerCase("einsum_scalar_products", (JOINT, CERTAIN), *einstein("bi,bi->b"), batched=()),
    LayerCase("einsum_sum", (JOINT, VECTOR), *einstein("bi,o->bo")),
    LayerCase("einsum_heads", (JOINT, Operand((1, 2, 2), "certain")), *einstein("bi,hdi->bhd")),
    LayerCase(
        "einsum_permutation", (Operand((1, 2, 2), "correlated"),), *einstein("bij->jbi"), batched=()
    ),
    LayerCase("sum", (JOINT,), lambda x: reduce_sum(x, [1]), lambda x: x.sum(-1)),
    LayerCase(
        "sum_and_keep",
        (JOINT,),
        lambda x: subtract(x, reduce_sum(x, [1], keepdims=True)),
        lambda x: x - x.sum(-1, keepdim=True),
    ),
    LayerCase("sum_of_all", (WEIGHT,), reduce_sum, torch.sum, batched=()),
    LayerCase(
        "sum_of_independent", (WEIGHT,), lambda x: reduce_sum(x, [0]), lambda x: x.sum(0), ()
    ),
    LayerCase(
        "sum_of_leading_features",
        (JOINT,),
        lambda x: reduce_sum(swap_last(x), [0]),
        lambda x: x.mT.sum(0),
    ),
    LayerCase(
        "sum_diagonal",
        (X,),
        lambda x: reduce_sum(x, [1]),
        lambda x: x.sum(-1),
        propagation=DIAGONAL,
    ),
    LayerCase(
        "centred",
        (JOINT,),
        lambda x: subtract(x, reduce_mean(x, [1], keepdims=True)),
        lambda x: x - x.mean(-1, keepdim=True),
    ),
    LayerCase("cumulative_sum", (JOINT,), lambda x: cumulative_sum(x, 1), lambda x: x.cumsum(-1)),
    LayerCase(
        "cumulative_sum_of_leading_features",
        (JOINT,),
        lambda x: cumulative_sum(swap_last(x), 0),
        lambda x: x.mT.cumsum(0),
        batched=(),
    ),
    LayerCase("difference", (JOINT,), lambda x: difference(x, 1), lambda x: x.diff()),
    LayerCase("product_of_two", (JOINT,), lambda x: product(x, 1), lambda x: x.prod(-1)),
    LayerCase(
        "product_of_batch", (WEIGHT,), lambda x: product(x, 0), lambda x: x.prod(0), batched=()
    ),
    LayerCase(
        "where",
        (JOINT, X),
        lambda x, y: where(chequered(x.mean), x, y),
        lambda x, y: torch.where(CHEQUERED.expand(x.shape), x, y),
        batched=(0, 1),
    ),
    LayerCase(
        "where_certain",
        (JOINT, CERTAIN),
        lambda x, y: where(chequered(x.mean), y, x),
        lambda x, y: torch.where(CHEQUERED.expand(x.shape), y, x),
        batched=(0, 1),
    ),
    LayerCase(
        "stack_of_slices",
        (JOINT,),
        lambda x: fixed(stack([*unstack(x, 1)][::-1], -1)),
        lambda x: fixed(x.flip(-1)),
    ),
    LayerCase(
        "stack_of_batches",
        (JOINT,),
        lambda x: stack([x, fixed(x)], -2),
        lambda x: torch.stack([x, fixed(x)], -2),
    ),
    LayerCase(
        "take",
        (JOINT,),
        lambda x: take(x, namespace(x.mean).asarray(CHOSEN), 1),
        lambda x: x[:, CHOSEN],
    ),
    LayerCase(
        "gather",
        (JOINT,),
        lambda x: gather(x, first_or_last(x.mean), 1),
        lambda x: x.gather(1, first_or_last(x)),
        batched=(),
    ),
]
