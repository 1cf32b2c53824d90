"""Programs of sums, products, linear maps and shape operations, of degree ≤ 2 in every scalar.

A row names the random inputs by letters; ``x`` and ``A`` are certain matrices. ``full`` and
``diagonal`` say what the library owes in each mode: ``"exact"`` moments, a ``"warning"`` (exact
mean), a refusal (``"refused"``), ``"approximate"`` variances (exact mean), or ``"any"`` moments.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

SHAPES = {
    "X": (2, 2),  # correlated over the trailing axis
    "W": (2, 2),
    "V": (1, 2),
    "b": (2,),
    "u": (3,),
    "s": (),
}
SWAPPED, REVERSED, REPEATED = np.array([1, 0]), np.array([2, 1, 0]), np.array([0, 0, 1])


@dataclass(frozen=True)
class Program:
    """A function of random inputs.

    Args:
        inputs: letters of :data:`SHAPES`.
        function: of these inputs; of the certain batch ``x`` first, if ``data``.
        full: what is owed with full covariances.
        diagonal: what is owed with variances only.
        data: whether the first argument is the certain batch.
    """

    name: str
    inputs: str
    function: Callable
    full: str = "exact"
    diagonal: str = "exact"
    data: bool = True


class Host:
    """A framework: its namespace, and x Wᵀ + b of x, W [out, in] or [in], maybe b."""

    def __init__(self, xp: Any, linear: Callable) -> None:
        self.xp, self.linear = xp, linear
        self.x = xp.asarray(np.array([[1.0, -0.5], [0.3, 2.0]]))
        self.A = xp.asarray(np.array([[0.4, -1.2], [0.9, 0.3]]))
        self.column = xp.asarray(np.array([[0.5], [-1.5]]))

    def layered(
        self, name: str, then: Callable, full: str = "exact", diagonal: str = "exact"
    ) -> Program:
        """What follows one random layer."""
        return Program(name, "W", lambda x, W: then(self.linear(x, W)), full, diagonal)


def joint(name: str, then: Callable, full: str = "exact", diagonal: str = "exact") -> Program:
    """What follows a correlated random input; in diagonal mode the correlation is left out."""
    return Program(name, "X", then, full, diagonal, data=False)


APPROXIMATE, WARNING, REFUSED = "approximate", "warning", "refused"


def linear_maps(host: Host) -> list[Program]:
    """Layers, and what they are layers of."""
    xp, linear, A, column = host.xp, host.linear, host.A, host.column
    layered = host.layered
    return [
        Program("linear", "Wb", linear),
        Program("random_input_and_weight", "XW", linear, diagonal=APPROXIMATE, data=False),
        Program("two_layers", "WV", lambda x, W, V: linear(linear(x, W), V)),
        Program("certain_second_layer", "W", lambda x, W: linear(linear(x, W), A)),
        Program(
            "three_layers",
            "W",
            lambda x, W: linear(linear(linear(x, W), A), A),
            "exact",
            APPROXIMATE,
        ),
        Program("bias_of_columns", "Wb", lambda x, W, b: (W @ x.T + b[:, None]).T),
        Program("matrix_times_vector", "b", lambda x, b: x @ b),
        Program("random_matrix_times_vector", "Wb", lambda W, b: W @ b, data=False),
        Program("vector_times_matrix", "b", lambda b: b @ A, data=False),
        Program("vector_as_weight", "b", lambda x, b: linear(x, b)),
        Program("scalar_bias", "Ws", linear),
        Program("transposed_weights", "WV", lambda x, W, V: x @ W.T @ V.T),
        Program("transposed_weights_of_columns", "WV", lambda x, W, V: (V @ (W @ x.T)).T),
        Program(
            "matrix_times_hidden_vector",
            "bW",
            lambda b, W: A @ (W @ (A @ b)),
            "exact",
            WARNING,
            data=False,
        ),
        Program("batched_input", "W", lambda x, W: (x[:, None] @ W).squeeze(1)),
        Program("weight_of_tied_leaf", "W", lambda x, W: linear(x, W * 2 + W)),
        Program("weight_of_affine_leaf", "W", lambda x, W: linear(x, A * W - 0.5)),
        Program("weight_of_product", "WX", lambda x, W, X: linear(x, W * X), REFUSED, REFUSED),
        Program(
            "weight_of_shared_factor", "Ws", lambda x, W, s: linear(x, s * W), REFUSED, REFUSED
        ),
        Program(
            "weight_of_expanded_row",
            "V",
            lambda x, V: linear(x, xp.broadcast_to(V, (2, 2))),
            REFUSED,
            REFUSED,
        ),
        Program(
            "weight_and_input_tied", "W", lambda x, W: linear(linear(x, W), W), REFUSED, REFUSED
        ),
        Program("weight_times_itself", "W", lambda W: W @ W.T, REFUSED, REFUSED, data=False),
        Program("dot_with_itself", "b", lambda b: b @ b, data=False),
        Program("layer_twice", "W", lambda x, W: linear(x, W) + linear(x, W)),
        Program("layer_on_two_inputs", "W", lambda x, W: linear(x, W) + linear(3 * x - 1, W)),
        Program("layer_difference", "W", lambda x, W: linear(x, W) - linear(2 * x, W)),
        Program("layer_product", "W", lambda x, W: linear(x, W) * linear(2 * x, W)),
        Program(
            "vector_twice", "Xb", lambda X, b: X @ b + (2 * X) @ b, REFUSED, WARNING, data=False
        ),
        layered("sum_over_batch", lambda h: xp.ones_like(column).T @ h, WARNING, WARNING),
        layered("columns_of_sums", lambda h: linear(h + h[..., SWAPPED], A), diagonal=APPROXIMATE),
    ]


def sums_and_products(host: Host) -> list[Program]:
    """Sums and products of dependent values."""
    linear, A, layered = host.linear, host.A, host.layered
    return [
        Program("scalar_shift", "Ws", lambda x, W, s: x @ W + s),
        Program("scalar_scale", "Ws", lambda x, W, s: s * (x @ W)),
        Program(
            "scaled_difference", "Ws", lambda x, W, s: (s * (x @ W))[..., :1] - s, diagonal="exact"
        ),
        Program(
            "shared_scale", "Ws", lambda x, W, s: s * (x @ W) + s * (x @ W @ A), REFUSED, WARNING
        ),
        Program("scale_of_heads", "Ws", lambda x, W, s: _heads(x @ W, s)),
        Program("column_times_row", "bV", lambda x, b, V: (x @ b)[:, None] * V),
        Program("column_plus_row", "bV", lambda x, b, V: (x @ b)[:, None] + V),
        Program("column_minus_itself", "b", lambda x, b: (x @ b)[:, None] - (x @ b)[:, None] * 2),
        Program("tied_leaf", "b", lambda b: b * 2 + b, data=False),
        Program("tied_leaf_square", "b", lambda b: b * b + 3 * b, data=False),
        Program("two_squares", "b", lambda b: b * b + b * b, data=False),
        Program("square_minus_square", "b", lambda b: b * b - b * (2 * b), data=False),
        Program("difference_of_neighbours", "u", lambda u: u[1:] - u[:-1], data=False),
        Program("product_of_neighbours", "u", lambda u: u[1:] * u[:-1], data=False),
        Program(
            "sum_of_neighbour_differences",
            "u",
            lambda u: (u[1:] - u[:-1])[..., :1] + u[2:],
            data=False,
        ),
        Program("flipped", "u", lambda u: u + u[REVERSED], data=False),
        Program("certain_minus_random", "W", lambda x, W: 1 - x @ W),
        Program("certain_divisor", "W", lambda x, W: (x @ W) / (1 + x[:, :1] ** 2)),
        joint("centred", lambda X: X - X[..., :1], diagonal=APPROXIMATE),
        joint("square", lambda X: X * X),
        joint("product_with_map", lambda X: X * linear(X, A), diagonal="any"),
        joint("residual", lambda X: X + linear(X, A), diagonal=APPROXIMATE),
        joint("negative_residual", lambda X: X - linear(X, A), diagonal=APPROXIMATE),
        Program(
            "random_residual", "XW", lambda X, W: X + linear(X, W), "exact", APPROXIMATE, data=False
        ),
        Program("residual_of_layer", "W", lambda x, W: _residual(linear, A, linear(x, W))),
        Program(
            "squared_distance", "Wb", lambda x, W, b: (x @ W - b) * (x @ W - b), REFUSED, REFUSED
        ),
        Program("squared_distance_once", "Wb", lambda x, W, b: _square(x @ W - b)),
        Program(
            "products_of_pairs",
            "Xb",
            lambda X, b: X * b + linear(X, A) * b,
            "exact",
            APPROXIMATE,
            data=False,
        ),
        layered("heads", lambda h: linear(h, A) + linear(h, A.T)),
        layered("product_of_heads", lambda h: linear(h, A) * linear(h, A.T)),
        layered("difference_of_heads", lambda h: linear(h, A) - linear(h, 2 * A)),
        layered("squares_of_heads", lambda h: linear(h, A) * h - h * h),
    ]


def _residual(linear, A, h):
    return h + linear(h, A)


def _square(h):
    return h * h


def _heads(h, s):
    scaled = s * h
    return scaled[..., :1] + 2 * scaled[..., 1:]


def shapes_and_slices(host: Host) -> list[Program]:
    """Shape operations, slices and concatenations."""
    xp, linear, A, layered = host.xp, host.linear, host.A, host.layered
    return [
        layered("product_of_slices", lambda h: _slices(linear(h, A), operator.mul)),
        layered("sum_of_slices", lambda h: _slices(linear(h, A), operator.add)),
        layered("difference_of_slices", lambda h: _slices(linear(h, A), operator.sub)),
        layered("slices_of_squares", lambda h: _slices(h * h, operator.sub)),
        layered("slices_of_products", lambda h: _slices(h * linear(h, A), operator.add)),
        layered("slices_of_residual", lambda h: _slices(h + linear(h, A), operator.mul)),
        layered("minus_first", lambda h: linear(h, A) - linear(h, A)[..., :1]),
        layered("first_times_all", lambda h: _with_first(linear(h, A), operator.mul)),
        layered(
            "cat", lambda h: xp.concatenate([h, xp.broadcast_to(A[1], h.shape), linear(h, A)], -1)
        ),
        layered(
            "cat_and_map",
            lambda h: linear(xp.concatenate([h, linear(h, A)], -1), xp.tile(A, (1, 2))),
            "exact",
            APPROXIMATE,
        ),
        layered("cat_slices", lambda h: xp.concatenate([h[..., 1:], linear(h, A)[..., :1]], -1)),
        layered(
            "cat_slices_difference",
            lambda h: _slices(xp.concatenate([h[..., 1:], h @ A], -1), operator.sub),
        ),
        layered("repeated_index", lambda h: h[..., REPEATED]),
        layered("repeated_index_difference", lambda h: _slices(h[..., REPEATED[:2]], operator.sub)),
        layered("new_axes", lambda h: (h[:, None] + 1).squeeze(1) * h),
        layered("leading_axis", lambda h: (h[None] * 2 - h[None])[0]),
        layered("transposed_sum", lambda h: (h.mT * 2 + h.mT).mT),
        layered("columns_plus_bias", lambda h: (linear(h, A).mT + xp.ones((2, 1))).mT),
        layered("expanded", lambda h: xp.broadcast_to(h, (3, *h.shape))[1]),
        layered(
            "expanded_slices",
            lambda h: _slices(xp.broadcast_to(linear(h, A), (3, *h.shape)), operator.sub)[2],
        ),
        layered("batch_of_scalars", lambda h: h[:, 0] * 3 + h[:, 0]),
        Program("expanded_scalar", "s", lambda s: xp.broadcast_to(s, (2, 3)) * 2 + s, data=False),
        Program("expanded_bias", "b", lambda b: xp.broadcast_to(b, (2, 2)) - b, data=False),
        Program("reshaped_leaf", "W", lambda W: W.reshape(4) * 2, data=False),
        Program("reshaped_leaf_as_weight", "W", lambda x, W: linear(x, W.reshape(4).reshape(2, 2))),
        joint("flattened", lambda X: X.reshape(4), WARNING),
        layered("batch_as_features", lambda h: h.reshape(-1) * 1.0, WARNING),
        Program("two_elements", "W", lambda W: _ends(linear(A, W)), data=False),
    ]


def _slices(h, combine):
    return combine(h[..., 0], h[..., 1])


def _ends(h):
    return h[:1] + h[-1:]


def _with_first(h, combine):
    return combine(h, h[..., :1])


def programs(host: Host) -> list[Program]:
    """All of them."""
    return linear_maps(host) + sums_and_products(host) + shapes_and_slices(host)


TORCH = Host(torch, F.linear)
x, A, linear, layered = TORCH.x, TORCH.A, TORCH.linear, TORCH.layered
PROGRAMS = programs(TORCH)
