"""Rows of layers: linear maps, arithmetic, shapes."""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from moment_calculus import operations as ops
from moment_calculus.concatenation import concatenate
from moment_calculus.indexing import index, unstack
from moment_calculus.linear import linear as gaussian_linear
from moment_calculus.linear import matmul
from moment_calculus.rulebooks import Propagation
from moment_calculus.shapes import reshape, swap_last
from moment_calculus.unary import scale_shift
from tests import row_functions as functions
from tests.operand_kinds import LayerCase, Operand
from tests.row_functions import fixed

DIAGONAL = Propagation(covariance="diagonal")

X = Operand((2, 2))
JOINT = Operand((2, 2), "correlated")
CERTAIN = Operand((2, 2), "certain")
WEIGHT = Operand((2, 2))
BIAS = Operand((2,))
VECTOR = Operand((2,))
CONSTANT = Operand((2,), "certain")

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
    LayerCase("add", (JOINT, X), ops.add, torch.add, batched=(0, 1)),
    LayerCase("add_bias", (JOINT, BIAS), ops.add, torch.add),
    LayerCase("subtract", (JOINT, X), ops.subtract, torch.subtract, batched=(0, 1)),
    LayerCase(
        "subtract_from_certain", (CERTAIN, JOINT), ops.subtract, torch.subtract, batched=(0, 1)
    ),
    LayerCase("multiply", (JOINT, X), ops.multiply, torch.multiply, batched=(0, 1)),
    LayerCase("multiply_certain", (JOINT, CERTAIN), ops.multiply, torch.multiply, batched=(0, 1)),
    LayerCase("multiply_diagonal", (X, X), ops.multiply, torch.multiply, (0, 1), DIAGONAL),
    LayerCase(
        "divide", (JOINT, Operand((2, 2), "positive")), ops.divide, torch.divide, batched=(0, 1)
    ),
    LayerCase("affine", (JOINT,), lambda x: scale_shift(x, -2.0, 1.5), lambda x: 1.5 - 2 * x),
    LayerCase("square", (JOINT,), lambda x: ops.multiply(x, x), torch.square),
    LayerCase(
        "product_of_dependent",
        (JOINT,),
        lambda x: ops.multiply(x, fixed(x)),
        lambda x: x * fixed(x),
    ),
    LayerCase(
        "difference_of_dependent",
        (JOINT,),
        lambda x: ops.subtract(x, fixed(x)),
        lambda x: x - fixed(x),
    ),
    LayerCase(
        "residual",
        (JOINT, WEIGHT),
        lambda x, w: ops.add(x, gaussian_linear(x, w)),
        lambda x, w: x + linear(x, w),
    ),
    LayerCase(
        "residual_diagonal",
        (X, WEIGHT),
        lambda x, w: ops.add(x, gaussian_linear(x, w)),
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
        lambda x, w: ops.multiply(*functions.halves(gaussian_linear(x, w), index)),
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
        lambda x: ops.multiply(*unstack(x, 1)),
        lambda x: torch.multiply(*x.unbind(-1)),
    ),
    LayerCase("transpose", (JOINT,), swap_last, lambda x: x.mT, batched=()),
]
