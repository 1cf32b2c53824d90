"""Programs whose covariances, computed backwards, were wrong once."""

from dataclasses import replace

import numpy as np

from tests.fuzzer.regressions import Regression

W, X = {"W": (2, 3)}, {"x": (2, 2, 3)}
ROWS = [
    Regression("rolled rows", X, "y = xp.roll(x, -1, 0)"),
    Regression(
        "product of entries of one row of correlated inputs",
        {"x": (2, 2)},
        "y = torch.gather(x, 0, torch.tensor([[1, 0], [0, 0]])).prod(-1)",
        "y = jnp.take_along_axis(x, jnp.array([[1, 0], [0, 0]]), 0).prod(-1)",
    ),
    Regression(
        "reversed rows of a function",
        W,
        "h = xp.tanh(W); y = h.flip(-2).unsqueeze(-1)",
        "h = xp.tanh(W); y = xp.expand_dims(xp.flip(h, -2), -1)",
    ),
    Regression("scalar products", {"x": (3, 2), "v": (2,)}, "y = x @ v"),
    Regression("a vector times a matrix", {"v": (2,), **W}, "y = v @ W"),
    Regression("function of correlated inputs on another axis", X, "y = xp.cos(x.mT)"),
    Regression("map of correlated inputs on another axis", W, "y = xp.tanh({c} @ W)"),
    Regression("product of correlated inputs", {"x": (2,)}, "y = xp.prod(xp.tanh(x) - 1.5, -1)"),
    Regression(
        "logsumexp of a softmax",
        W,
        "y = torch.logsumexp(torch.softmax(W, -1), 1)",
        "y = jax.nn.logsumexp(jax.nn.softmax(W, -1), 1)",
    ),
    Regression(
        "positive value with one of its elements",
        {"x": (3,)},
        "y = xp.log(xp.exp(x[0]) + xp.exp(x))",
    ),
    Regression(
        "product of a row with itself",
        {"x": (3,)},
        "y = xp.prod(x.expand(2, 3), -2)",
        "y = xp.prod(xp.broadcast_to(x, (2, 3)), -2)",
    ),
    Regression(
        "inputs that are their own weights",
        W,
        "y = F.linear(W, W)",
        "y = W @ W.T",
        verdicts=("right", "refused"),
    ),
    Regression("weights of two slopes", {"W": (3, 3)}, "y = {d} @ W.T + {d} @ xp.tanh(W).T"),
    Regression("difference from the mean of rows", W, "h = {c} @ W; y = h - h.mean(0)"),
    Regression(
        "choice between a rolled value and itself",
        W,
        "h = xp.roll(W - 1.0, -2, -1); y = xp.where({columns}, h, h)",
    ),
    Regression(
        "correlated part of a function times all of it",
        {"x": (1, 2)},
        'h = F.leaky_relu(x); y = xp.einsum("bi,bj->bij", h[:, 1:], h)',
        'h = jax.nn.leaky_relu(x); y = xp.einsum("bi,bj->bij", h[:, 1:], h)',
    ),
    Regression(
        "choice between elements and a function of their mean",
        {"x": (2, 3, 1)},
        "y = xp.where({chosen}, xp.sin(x.mean()), x)",
    ),
    Regression(
        "function times the log softmax of itself, of equal elements",
        {"x": ()},
        "h = F.leaky_relu(torch.stack([x, x])); y = h * F.log_softmax({scales} * h, 0)",
        "h = jax.nn.leaky_relu(xp.stack([x, x])); y = h * jax.nn.log_softmax({scales} * h)",
    ),
    Regression(
        "convolution of a value with itself",
        {"x": (2, 1, 3)},
        "y = F.conv1d(x, x)",
        'y = jax.lax.conv_general_dilated(x, x, (1,), "VALID")',
        verdicts=("right", "refused"),
    ),
    Regression(
        "sum of a reversed row that is repeated",
        {"x": (2,)},
        "y = xp.sum(torch.flip(x.expand(3, 2), (0,)))",
        "y = xp.sum(jnp.flip(jnp.broadcast_to(x, (3, 2)), 0))",
    ),
    Regression(
        "sum of weighted channels in reverse order",
        {"x": (3, 1, 4), "w": (2, 1, 1)},
        "y = xp.sum({weights} * torch.flip(F.conv1d(x, w, stride=2), (-3,)))",
        "y = xp.sum({weights} * jnp.flip(jax.lax.conv_general_dilated(x, w, (2,), [(0, 0)]), -3))",
    ),
]
CONSTANTS = {
    "weights": np.arange(1.0, 4.0).reshape(3, 1, 1),
    "c": np.array([[0.4, -1.2], [0.9, 0.3]]),
    "d": np.array([[0.4, -1.2, 0.5], [0.9, 0.3, -0.7]]),
    "columns": np.array([[True, True, True], [False, False, True]]),
    "scales": np.array([0.8, 2.0]),
    "chosen": np.arange(6).reshape(2, 3, 1) % 5 < 2,
}
BACKWARDS = [
    replace(
        row,
        modes=("backward",),
        constants={name: array for name, array in CONSTANTS.items() if f"{{{name}}}" in row.torch},
        correlated="correlated" in row.name,
    )
    for row in ROWS
]
