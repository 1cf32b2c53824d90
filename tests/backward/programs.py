"""Programs of the vocabularies, and the cases of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import constants
from tests.backward.cases import Case

RANDOM = np.random.default_rng(35)
X, Z = RANDOM.normal(size=(2, 4, 3))
POSITIONS = RANDOM.normal(size=(2, 5, 3))
A, B = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(3, 2))
LINES = RANDOM.normal(size=(2, 2, 8))
GROUPS, SLOPES = np.array([0, 2, 2, 1, 4, 0]), RANDOM.normal(size=6)


def like(array: np.ndarray, x: Any) -> Any:
    """A constant with the type of the arrays of a value."""
    mean = getattr(x, "moments", x)
    return constants(array, getattr(mean, "mean", mean) if hasattr(mean, "sites") else mean)


def perceptron(function: str) -> Callable:
    def program(v, w, b, u, c):
        hidden = v.function(function, v.linear(like(X, w), w, b))
        return v.linear(hidden, u, c)

    return program


def residual(v, w, u, o):
    first = v.linear(like(X, w), w)
    return v.linear(v.plus(first, v.function("tanh", v.linear(first, u))), o)


def cell(v, state, w, u):
    """Three steps of a recurrent cell, whose weights are the same."""
    for step in range(3):
        inputs = v.linear(like(X[:2] + step, w), w)
        state = v.function("tanh", v.plus(inputs, v.linear(state, u)))
    return state


def pooled(v, w, u):
    """One network at five positions, and its mean over these."""
    hidden = v.function("relu", v.linear(like(POSITIONS, w), w))
    return v.affine(v.sums(v.linear(hidden, u), [1]), 0.2)


def heads(v, w, u):
    """Two outputs of one hidden layer as values of their own."""
    out = v.linear(v.function("relu", v.linear(like(X, w), w)), u)
    return v.joined([v.take(out, (..., slice(0, 1))), v.take(out, (..., slice(1, 2)))], -1)


def both_sides(v, w, u):
    x = v.linear(like(X, w), w)
    sides = v.function("relu", x), v.function("relu", v.affine(x, -1.0))
    return v.linear(v.joined(sides, -1), u)


def own_gate(v, w, u):
    x = v.linear(like(X, w), w)
    return v.linear(v.product(x, v.function("tanh", x)), u)


def rearranged(v, w, u):
    """A function beside its rows in another order, with one row in its place."""
    values = v.function("relu", v.linear(like(X, w), w))
    moved = v.take(v.take(values, ([1, 0, 3, 2],)), ([0, 1, 3, 2],))
    return v.linear(v.plus(values, moved), u)


def weight_and_function(v, w, u):
    """A weight with different slopes at its uses."""
    bounded = v.function("tanh", v.affine(w, 0.5))
    hidden = v.function("tanh", v.linear(like(X, w), w))
    return v.plus(v.linear(hidden, w), v.linear(v.linear(like(Z, w), u), bounded))


def centred(v, x, w):
    """Rows without the mean of the batch."""
    rows = v.plus(v.linear(x, like(A, x)), v.linear(like(X, w), w))
    mean = v.affine(v.reshape(v.sums(rows, [0]), (1, 2)), 0.25)
    return v.minus(rows, mean)


def shared_bias(v, w, b, u):
    """One bias of two layers."""
    hidden = v.function("tanh", v.linear(like(X, w), w, b))
    return v.linear(hidden, u, b)


def of_vectors(v, w, u):
    """Layers whose weights are rows of vectors."""
    hidden = v.function("tanh", v.linear(like(X, w), v.reshape(w, (3, 3))))
    return v.linear(hidden, v.reshape(u, (2, 3)))


def convolutions(v, w, u, o):
    """Two convolutions with a pool between them, and a layer of all that they give."""
    hidden = v.function("relu", v.convolved(like(LINES, w), w))
    hidden = v.function("relu", v.convolved(v.pooled(hidden), u))
    return v.linear(v.reshape(hidden, (2, 6)), o)


def repeated(v, w, u):
    """The sum of rows, of which one is repeated behind a function."""
    values = v.function("relu", v.linear(like(X, w), w))
    return v.linear(v.sums(v.take(values, ([0, 0, 3, 2],)), [0]), u)


MLP = {"w": (3, 3), "b": (3,), "u": (2, 3), "c": (2,)}
CASES = [
    Case(
        "one random layer",
        {"w": (2, 3), "b": (2,)},
        lambda v, w, b: v.linear(like(X, w), w, b),
        linear=True,
    ),
    Case(
        "a random layer between certain ones",
        {"w": (3, 2), "b": (3,)},
        lambda v, w, b: v.linear(v.linear(like(X @ A.T, w), w, b), like(A, w)),
        linear=True,
    ),
    Case(
        "noisy inputs",
        {"x": (4, 3)},
        lambda v, x: v.linear(v.linear(x, like(A, x)), like(B, x)),
        linear=True,
    ),
    Case(
        "correlated inputs",
        {"x_joint": (4, 3)},
        lambda v, x: v.linear(v.linear(x, like(A, x)), like(B, x)),
        linear=True,
    ),
    Case(
        "a chain",
        {"x_chain": (4, 3)},
        lambda v, x: v.linear(v.linear(x, like(A, x)), like(B, x)),
        linear=True,
    ),
    Case(
        "a layer of a chain",
        {"w_chain": (6,)},
        lambda v, w: v.linear(like(X, w), v.reshape(w, (2, 3))),
        linear=True,
    ),
    Case(
        "a layer of correlated weights",
        {"w_joint": (6,)},
        lambda v, w: v.linear(like(X, w), v.reshape(w, (2, 3))),
        linear=True,
    ),
    Case(
        "one convolution",
        {"w": (3, 2, 3)},
        lambda v, w: v.convolved(like(LINES, w), w),
        linear=True,
    ),
    Case(
        "a pooled convolution",
        {"w": (3, 2, 3)},
        lambda v, w: v.sums(v.pooled(v.convolved(like(LINES, w), w)), [2]),
        linear=True,
    ),
    Case(
        "slices of one site",
        {"x": (4, 3)},
        lambda v, x: v.minus(
            v.affine(v.take(x, (..., slice(1, 3))), 2.0, 1.0), v.take(x, (..., slice(0, 2)))
        ),
        linear=True,
    ),
    Case(
        "effects of groups",
        {"effects": (5,), "slope": ()},
        lambda v, effects, slope: v.plus(
            v.take(effects, GROUPS), v.product(like(SLOPES, slope), slope)
        ),
        linear=True,
    ),
    Case(
        "effects of groups, summed",
        {"effects": (5,), "mean": ()},
        lambda v, effects, mean: v.sums(v.plus(v.take(effects, GROUPS), mean), [0]),
        linear=True,
    ),
    Case(
        "one layer at several rows",
        {"w": (2, 3)},
        lambda v, w: v.plus(v.linear(like(X, w), w), v.linear(like(Z, w), w)),
        linear=True,
    ),
    Case(
        "one layer at positions, summed",
        {"w": (2, 3)},
        lambda v, w: v.sums(v.linear(like(POSITIONS, w), w), [1]),
        linear=True,
    ),
    Case(
        "scalar products",
        {"v": (3,)},
        lambda v, vector: v.matmul(like(X, vector), vector),
        linear=True,
    ),
    Case(
        "scalar products with a correlated vector",
        {"v_joint": (3,)},
        lambda v, vector: v.matmul(like(X, vector), vector),
        linear=True,
    ),
    Case(
        "columns",
        {"w": (3, 2)},
        lambda v, w: v.permute(v.matmul(like(X, w), w), (1, 0)),
        linear=True,
    ),
    Case(
        "reversed rows of a layer",
        {"w": (2, 3)},
        lambda v, w: v.take(v.linear(like(X, w), w), ([3, 1, 0, 2],)),
        linear=True,
    ),
    Case(
        "reshaped",
        {"x": (4, 3), "shift": (3,)},
        lambda v, x, shift: v.reshape(v.plus(x, shift), (2, 6)),
        linear=True,
    ),
    Case("a cumulative sum", {"steps": (5,)}, lambda v, steps: v.cumulative(steps, 0), linear=True),
    Case("a batch without its mean", {"x": (4, 3), "w": (2, 3)}, centred, linear=True),
    Case("perceptron of tanh", MLP, perceptron("tanh")),
    Case("perceptron of relu", MLP, perceptron("relu")),
    Case("residual", {"w": (3, 3), "u": (3, 3), "o": (2, 3)}, residual),
    Case("recurrent cell", {"state": (2, 3), "w": (3, 3), "u": (3, 3)}, cell),
    Case("pooled positions", {"w": (3, 3), "u": (2, 3)}, pooled),
    Case("a weight and a function of it", {"w": (3, 3), "u": (3, 3)}, weight_and_function),
    Case("a shared bias", {"w": (3, 3), "b": (3,), "u": (3, 3)}, shared_bias),
    Case("weights of chains", {"w_chain": (9,), "u_chain": (6,)}, of_vectors),
    Case("correlated weights", {"w_joint": (9,), "u_joint": (6,)}, of_vectors),
    Case("convolutions", {"w": (3, 2, 3), "u": (3, 3, 2), "o": (2, 6)}, convolutions),
    Case(
        "largest of windows",
        {"w": (3, 2, 3), "o": (2, 9)},
        lambda v, w, o: v.linear(v.reshape(v.largest(v.convolved(like(LINES, w), w)), (2, 9)), o),
        reference=False,
    ),
    Case("repeated rows", {"w": (3, 3), "u": (2, 3)}, repeated),
    Case("rearranged rows", {"w": (3, 3), "u": (2, 3)}, rearranged),
    Case("heads", {"w": (3, 3), "u": (2, 3)}, heads),
    Case(
        "a gate",
        {"w": (3, 3), "u": (3, 3)},
        lambda v, w, u: v.product(
            v.linear(like(X, w), w), v.function("sigmoid", v.linear(like(X, u), u))
        ),
    ),
    Case(
        "softmax",
        {"w": (3, 3), "u": (2, 3)},
        lambda v, w, u: v.linear(v.softmax(v.linear(like(X, w), w)), u),
        reference=False,
    ),
    Case(
        "normalised",
        {"w": (3, 3), "u": (2, 3)},
        lambda v, w, u: v.linear(v.normalised(v.linear(like(X, w), w)), u),
        reference=False,
    ),
    Case("both sides of a relu", {"w": (3, 3), "u": (2, 6)}, both_sides, reference=False),
    Case("an input times its own gate", {"w": (3, 3), "u": (2, 3)}, own_gate, reference=False),
]
