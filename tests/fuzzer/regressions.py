"""Programs that were wrong once: each by a name, in the spellings of both hosts."""

import re
from dataclasses import dataclass, field, replace

import numpy as np

from tests.fuzzer import drawing
from tests.fuzzer.operations import Operation
from tests.fuzzer.programs import SCALE, Input, Line, Program

NEURAL = re.compile(r"(?<![\w.])nn\.")


@dataclass(frozen=True)
class Regression:
    """A program in words of the host.

    Lines are ``name = expression``, the last of which is the output; ``xp`` is torch or
    ``jax.numpy``, ``nn`` torch or ``jax.nn``, and braces name constants. ``jax`` has those that
    JAX spells otherwise.
    Correlated inputs are so along the trailing axis.
    """

    name: str
    inputs: dict[str, tuple[int, ...]]
    torch: str
    jax: str = ""
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    modes: tuple[str, ...] = ("full",)
    hosts: tuple[str, ...] = ("torch", "jax")
    verdicts: tuple[str, ...] = ("right",)
    correlated: bool = False

    def program(self) -> Program:
        """As the fuzzer has it."""
        rng = np.random.default_rng(0)
        inputs = {}
        for name, shape in self.inputs.items():
            variance = np.asarray(np.round(rng.uniform(0.5, 1.5, size=shape), 2))
            inputs[name] = Input(drawing.array(rng, shape), SCALE**2 * variance)
            if self.correlated:
                factor = drawing.array(rng, (*shape, shape[-1]))
                covariance = SCALE**2 * factor @ np.swapaxes(factor, -1, -2)
                inputs[name] = replace(inputs[name], covariance=covariance)
        in_torch = NEURAL.sub("torch.", self.torch).split("; ")
        in_jax = NEURAL.sub("jax.nn.", self.jax or self.torch).split("; ")
        lines = tuple(map(self._line, in_torch, in_jax))
        return Program(inputs, lines, lines[-1].result)

    def _line(self, torch: str, jax: str) -> Line:
        (result, in_torch), (_, in_jax) = (text.split(" = ", 1) for text in (torch, jax))
        operation = Operation(self.name, drawing.nothing, (in_torch,), (in_jax,))
        used = {name: one for name, one in self.constants.items() if f"{{{name}}}" in in_torch}
        return Line(result, operation, (), used)


W, X = {"W": (2, 3)}, {"x": (2, 2, 3)}
REGRESSIONS = [
    Regression("log_softmax over the batch", W, "y = nn.log_softmax(W, 0)"),
    Regression(
        "minus logsumexp over the batch",
        W,
        "y = W - torch.logsumexp(W, 0, keepdim=True)",
        "y = W - jax.nn.logsumexp(W, 0, keepdims=True)",
    ),
    Regression("beside its softmax over the batch", W, "y = W + nn.softmax(W, 0)"),
    Regression("beside its softmax over a middle axis", X, "y = x + nn.softmax(x, 1)"),
    Regression("softmax of transposed weights", W, "y = nn.softmax(W.T, -1) + W.T"),
    Regression("log_softmax of columns", {"x": (3, 1)}, "y = nn.log_softmax(x, 0)"),
    Regression("log_softmax of single classes", {"x": (3, 1)}, "y = nn.log_softmax(x, -1)"),
    Regression("log_softmax of one class", {"x": (1,)}, "y = nn.log_softmax(x, 0)"),
    Regression(
        "log_softmax of rows repeated",
        {"x": (1, 3)},
        "y = torch.log_softmax(x.expand(2, 3), -1)",
        "y = jax.nn.log_softmax(xp.broadcast_to(x, (2, 3)), -1)",
    ),
    Regression("log_softmax of exponentials", W, "y = nn.log_softmax(xp.exp(W), -1)"),
    Regression(
        "softmax of what is centred",
        W,
        "y = torch.softmax(W - W.mean(-1, keepdim=True), -1)",
        "y = jax.nn.softmax(W - W.mean(-1, keepdims=True), -1)",
    ),
    Regression("log_softmax of sums", W, "y = nn.log_softmax(W.sum(-1), 0)"),
    Regression(
        "log_softmax of two stacked vectors",
        {"u": (3,), "w": (3,)},
        "y = nn.log_softmax(xp.stack([u, w], -1), -1)",
    ),
    Regression(
        "log_softmax of scaled squares",
        W,
        "y = nn.log_softmax({c} * W ** 2, 1)",
        constants={"c": np.array([0.5, -1.0, 0.7])},
    ),
    Regression(
        "layer_norm of rows repeated",
        {"x": (1, 4)},
        "v = x.expand(2, 4); c = v - v.mean(-1, keepdim=True); y = F.layer_norm(v, (4,))",
        "v = xp.broadcast_to(x, (2, 4)); c = v - xp.mean(v, -1, keepdims=True); "
        "y = c / xp.sqrt(xp.var(v, -1, keepdims=True) + 1e-5)",
    ),
    Regression(
        "rms_norm of rows repeated",
        {"x": (1, 4)},
        "v = x.expand(2, 4); y = F.rms_norm(v, (4,), eps=1e-5)",
        "v = xp.broadcast_to(x, (2, 4)); "
        "y = v * jax.lax.rsqrt(xp.mean(v ** 2, -1, keepdims=True) + 1e-5)",
    ),
    Regression("root of one and a squared mean", W, "y = xp.sqrt(1 + W.mean() ** 2)"),
    Regression(
        "one class expanded along the classes",
        {"x": (2, 1)},
        "y = torch.log_softmax(x, -1).expand(2, 3)",
        "y = xp.broadcast_to(jax.nn.log_softmax(x, -1), (2, 3))",
    ),
    Regression(
        "product over a batch of one",
        {"x": (1, 3)},
        "y = (x @ {A}.T).prod(0)",
        constants={"A": np.array([[0.4, -1.2, 0.5], [0.9, 0.3, -0.7]])},
    ),
    Regression(
        "cumulative sum over a batch of one", {"x": (1, 3)}, "y = nn.softmax(x, -1).cumsum(0)"
    ),
    Regression(
        "gathered features beside a batch",
        {"u": (3,), "w": (3,)},
        'v = torch.gather(2 * u, 0, {places}); y = u - xp.einsum("i,j->ij", xp.tanh(v) @ {A}, w)',
        "v = xp.take_along_axis(2 * u, {places}, 0); "
        'y = u - xp.einsum("i,j->ij", xp.tanh(v) @ {A}, w)',
        constants={"places": np.array([2, 0, 2]), "A": np.diag([0.5, 1.0, -1.0]) + 0.25},
    ),
    Regression(
        "softmax with a batch of weights",
        {"x": (2, 2, 3), "w": (2, 3, 1)},
        "y = xp.matmul(nn.softmax(x, -1), w)",
        modes=("full", "diagonal"),
    ),
    Regression(
        "chain with an array for features in front",
        {"x": (3, 3)},
        "y = nn.relu(xp.tanh(x @ {A}).T + {column}).T",
        constants={"A": np.diag([0.5, 1.0, -1.0]) + 0.25, "column": np.array([[2.0], [1.5], [0]])},
    ),
    Regression(
        "scalars beside a value with one more axis",
        {"x": (2, 1, 2)},
        "y = xp.tanh(x); z = xp.mean(y, 2) * y",
        verdicts=("refused", "right"),
    ),
    Regression(
        "sum of one element times a batch with it",
        {"x": (2, 2), "u": (1, 2)},
        "y = u.sum(0) * torch.cat([x, u], 0)",
        "y = u.sum(0) * xp.concatenate([x, u], 0)",
        verdicts=("refused", "right"),
    ),
    Regression("flip of a vector", {"u": (3,)}, "y = u.flip(0) + u", "y = xp.flip(u, 0) + u"),
    Regression("flipud of a vector", {"u": (3,)}, "y = xp.flipud(u) - 2 * u"),
    Regression("roll of a vector", {"u": (3,)}, "y = xp.roll(u, 1, 0) * u"),
    Regression("roll of all elements", W, "y = xp.roll(W, 1)", hosts=("torch",)),
    Regression(
        "product with its sums, of a batch of one",
        {"x": (1, 1)},
        'c = torch.cat([x, x], -1); y = c * xp.einsum("bi,bi->b", c, {ones})',
        'c = xp.concatenate([x, x], -1); y = c * xp.einsum("bi,bi->b", c, {ones})',
        constants={"ones": np.ones((1, 2))},
    ),
    Regression(
        "scalar product of a vector and a function of it", {"x": (3,)}, "y = x @ xp.tanh(x)"
    ),
    Regression(
        "scalar product of dependent vectors",
        {"x": (3,), "u": (3,)},
        "y = (x @ {A}) @ (u @ {A})",
        constants={"A": np.diag([0.5, 1.0, -1.0]) + 0.25},
    ),
    Regression(
        "scalar product of two functions of one dependent vector",
        {"x": (3,)},
        "h = x @ {A}; y = xp.sin(h) @ h",
        constants={"A": np.diag([0.5, 1.0, -1.0]) + 0.25},
    ),
    Regression(
        "scalar product of a certain and a dependent vector",
        {"x": (3,)},
        "y = {c} @ xp.sin(x @ {A})",
        constants={"A": np.diag([0.5, 1.0, -1.0]) + 0.25, "c": np.array([1.0, -0.5, 2.0])},
    ),
    Regression(
        "scalar product of a certain and a latent vector",
        {"u": (3,)},
        "y = {c} @ u",
        constants={"c": np.array([1.0, -0.5, 2.0])},
        modes=("full", "diagonal"),
    ),
    Regression(
        "scalar product of a latent and a dependent vector",
        {"x": (3,), "u": (3,)},
        "y = u @ xp.sin(x @ {A})",
        constants={"A": np.diag([0.5, 1.0, -1.0]) + 0.25},
    ),
    Regression(
        "logsumexp of sums beside their inputs",
        {"x": (1, 2)},
        'y = nn.logsumexp(xp.einsum("bi,bi->b", x, {ones}), -1) + x',
        constants={"ones": np.ones((1, 2))},
    ),
    Regression(
        "one row of maps that share weights, beside all rows",
        W,
        "h = {c} @ W.T; y = xp.tanh(h) + xp.tanh(h[0])",
        constants={"c": np.array([[0.4, -1.2, 0.5], [0.9, 0.3, -0.7]])},
    ),
    Regression(
        "choice between elements and the sum of all",
        {"x": (3, 4, 1)},
        "y = xp.where({c}, x, xp.sum(x))",
        constants={"c": np.arange(12).reshape(3, 4, 1) % 5 < 2},
        verdicts=("right", "refused"),
    ),
    Regression("overlapping maxima", {"x": (2, 6)}, "y = F.max_pool1d(x, 3, 1)", hosts=("torch",)),
    Regression(
        "dropout twice of a function",
        {"x": (1, 3)},
        "y = xp.sin(dropped(dropped(xp.cos(x), 0.4), 0.3))",
    ),
    Regression(
        "slice of dropout of a function",
        {"x": (1, 3)},
        "y = xp.sin(dropped(dropped(xp.tanh(x), 0.4)[..., 1:], 0.3))",
    ),
    Regression(
        "a scalar as a share of its sums",
        {"x": (), "v": (2, 3)},
        "y = xp.exp(x) / (xp.exp(v) + xp.exp(x)) + xp.exp(x) / (xp.exp(x) + xp.exp(2 * v))",
        modes=("full", "backward", "diagonal"),
    ),
    Regression(
        "one function of a stack",
        {"x": ()},
        "u = xp.square(x); s = xp.stack([u, u], -1); v = xp.sqrt(1 + s**2); y = v[..., 1]",
    ),
]
