"""The plain functions of the rows of ``tests/cases/layers.py``, in JAX."""

import jax.numpy as jnp
import numpy as np

from tests.cases import row_functions


def linear(x, weight, bias=0.0):
    return x @ weight.T + bias


def fixed(x):
    return x @ jnp.asarray(row_functions.MATRIX).T


def halves(x):
    return x[..., 0:1], x[..., 1:2]


def chequered(x):
    """A certain mask; JAX asks for it by shape."""
    return jnp.broadcast_to(np.array([True, False]), x.shape)


def einstein(equation):
    return lambda *operands: jnp.einsum(equation, *operands)


FUNCTIONS = {
    "linear": linear,
    "linear_joint_input": linear,
    "linear_certain_input": linear,
    "linear_certain_weight": linear,
    "linear_certain_bias": linear,
    "linear_without_bias": lambda x, w: x @ w.T,
    "linear_diagonal": linear,
    "linear_chain": lambda x, w, b, v: linear(linear(x, w, b), v),
    "matmul_random_right": jnp.matmul,
    "matmul_certain_right": jnp.matmul,
    "matmul_random_left": jnp.matmul,
    "matmul_certain_left": jnp.matmul,
    "matrix_times_vector": jnp.matmul,
    "certain_matrix_times_vector": jnp.matmul,
    "matrix_times_certain_vector": jnp.dot,
    "certain_vector_times_matrix": jnp.dot,
    "add": jnp.add,
    "add_bias": jnp.add,
    "subtract": jnp.subtract,
    "subtract_from_certain": jnp.subtract,
    "multiply": jnp.multiply,
    "multiply_certain": jnp.multiply,
    "multiply_diagonal": jnp.multiply,
    "divide": jnp.divide,
    "affine": lambda x: 1.5 - 2 * x,
    "square": jnp.square,
    "product_of_dependent": lambda x: x * fixed(x),
    "difference_of_dependent": lambda x: x - fixed(x),
    "residual": lambda x, w: x + x @ w.T,
    "residual_diagonal": lambda x, w: x + x @ w.T,
    "concatenate": lambda x, y: jnp.concatenate([x, fixed(x), y], -1),
    "slices_of_one_output": lambda x, w: jnp.multiply(*halves(x @ w.T)),
    "reshape_keeps_features": lambda x: x.reshape(-1, 1, 2),
    "select": lambda x: x[..., 1],
    "unstack": lambda x: jnp.multiply(*jnp.unstack(x, axis=-1)),
    "transpose": jnp.matrix_transpose,
    "permute_and_map": lambda x: fixed(x.transpose(2, 0, 1).transpose(1, 2, 0)),
    "permute": lambda x: x.transpose(2, 0, 1),
    "batch_of_weights": lambda x, w: x @ w.mT,
    "batch_of_certain_matrices": jnp.matmul,
    "batch_of_weights_certain_input": jnp.matmul,
    "einsum_linear": einstein("bi,oi->bo"),
    "einsum_weight_first": einstein("oi,bi->bo"),
    "einsum_elementwise": einstein("bi,bi->bi"),
    "einsum_outer": einstein("bi,o->boi"),
    "einsum_scalar_products": einstein("bi,bi->b"),
    "einsum_sum": einstein("bi,o->bo"),
    "einsum_heads": einstein("bi,hdi->bhd"),
    "einsum_permutation": einstein("bij->jbi"),
    "sum": lambda x: x.sum(-1),
    "sum_and_keep": lambda x: x - x.sum(-1, keepdims=True),
    "sum_of_all": jnp.sum,
    "sum_of_independent": lambda x: x.sum(0),
    "sum_of_leading_features": lambda x: x.mT.sum(0),
    "sum_diagonal": lambda x: x.sum(-1),
    "centred": lambda x: x - x.mean(-1, keepdims=True),
    "cumulative_sum": lambda x: x.cumsum(-1),
    "cumulative_sum_of_leading_features": lambda x: x.mT.cumsum(0),
    "difference": jnp.diff,
    "product_of_two": lambda x: x.prod(-1),
    "product_of_batch": lambda x: x.prod(0),
    "where": lambda x, y: jnp.where(chequered(x), x, y),
    "where_certain": lambda x, y: jnp.where(chequered(x), y, x),
    "stack_of_slices": lambda x: fixed(jnp.stack([x[:, 1], x[:, 0]], -1)),
    "stack_of_batches": lambda x: jnp.stack([x, fixed(x)], -2),
    "take": lambda x: x[:, np.array([1, 0, 1])],
    "gather": lambda x: jnp.take_along_axis(x, np.array([[0, 0], [1, 0]]), 1),
}
