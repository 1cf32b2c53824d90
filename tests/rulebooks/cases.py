"""The rules that books of the library have for functions: a rule is a row of ``RULES``.

A row states the mean and the variance of f(x) for x ~ N(μ, v) by the book's own formula, computed
another way than the book does; ``None`` where the book stands for the exact moments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import special, stats

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import RULEBOOKS, propagation_of
from moment_calculus.rulebooks.logistic import Logistic
from moment_calculus.values import cross_covariance

Formula = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
GENERATOR = np.random.default_rng(0)
MEAN = GENERATOR.normal(size=(2, 4))
ROOT = GENERATOR.normal(size=(2, 4, 4)) / 2
DEFAULTS = vars(RULEBOOKS["logistic"])


@dataclass(frozen=True)
class Rule:
    """A function as a book takes it; what ``tests/checks/general.py`` needs."""

    book: Any
    function: str
    formula: Formula | None
    arguments: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        formulas = [n for n in ("mean", "variance", "relu") if n in vars(self.book)]
        chosen = [getattr(self.book, n) for n in formulas if vars(self.book)[n] != DEFAULTS[n]]
        return "-".join([self.book.name, *chosen, self.function])

    def example(self) -> tuple[np.ndarray, np.ndarray]:
        """Means, and square roots of covariances."""
        return MEAN, ROOT

    def shrunk(self, arrays: Any, by: float) -> tuple[np.ndarray, np.ndarray]:
        return arrays[0], by * arrays[1]

    @property
    def activation(self) -> Any:
        return activation(self.function, *self.arguments)

    def plain(self, mean: np.ndarray, root: np.ndarray) -> dict[str, np.ndarray]:
        zero = np.zeros_like(mean)
        return {"mean": self.activation(mean), "variance": zero, "covariance": 0 * root}

    def outputs(self, mean: Any, root: Any, modes: Any = ("full", "diagonal")) -> dict[str, Any]:
        """Moments in both modes of covariance, and the covariance with the argument."""
        found: dict[str, Any] = {}
        for mode in (m for m in modes if m in self.book.covariances):
            given = Moments(mean, covariance=root @ root.swapaxes(-1, -2))
            x = as_value(given, "x", propagation_of(mode, self.book))
            y = apply(self.activation, x).gaussian()
            found |= {f"mean-{mode}": y.mean, f"variance-{mode}": y.variance}
            if mode == "full":
                found |= {"covariance": y.covariance, "cross": cross_covariance(y, x)}
        return found


# -------------------------------------------------------------------------------------------------
# vbp: a mixture of lines, chosen by a variable z that is independent of x


def gates(knots: Any, lines: Any, mean: np.ndarray, variance: np.ndarray) -> Any:
    """Moments of the mixture, by E h = E z E f and E h² = E z E f² for each piece."""
    beyond = [1 / (1 + np.exp(-np.clip(100 * (mean - k), -700, 700))) for k in knots]
    shares = -np.diff([np.ones_like(mean), *beyond, np.zeros_like(mean)], axis=0)
    first = sum(p * (a * mean + b) for p, (a, b) in zip(shares, lines, strict=True))
    squares = [a * a * (variance + mean**2) + 2 * a * b * mean + b * b for a, b in lines]
    return first, sum(p * s for p, s in zip(shares, squares, strict=True)) - first**2


OF_VBP = {
    "relu": ((0.0,), ((0, 0), (1, 0))),
    "leaky_relu": ((0.0,), ((0.01, 0), (1, 0))),
    "heaviside": ((0.0,), ((0, 0), (0, 1))),
    "abs": ((0.0,), ((-1, 0), (1, 0))),
    "hardtanh": ((-1.0, 1.0), ((0, -1), (1, 0), (0, 1))),
    "relu6": ((0.0, 6.0), ((0, 0), (1, 0), (0, 6))),
    "sigmoid": ((-2.0, 2.0), ((0, 0), (0.25, 0.5), (0, 1))),
    "tanh": ((-1.0, 1.0), ((0, -1), (1, 0), (0, 1))),
}


# -------------------------------------------------------------------------------------------------
# logistic: the formulas of the paper's table, written out with SciPy


def sigmoid(mean: str, variance: str, m: np.ndarray, v: np.ndarray) -> Any:
    """The mean as that of another distribution function, or of the logistic one in its place."""
    scale = v**0.5
    centre = {
        "ap1": lambda: stats.logistic.cdf(m),
        "ap2a": lambda: stats.norm.cdf(m, scale=(v + np.pi**2 / 3) ** 0.5),
        "ap2b": lambda: stats.logistic.cdf(m, scale=(1 + 3 * v / np.pi**2) ** 0.5),
        "pea": lambda: integral(lambda x: stats.laplace.cdf(x, scale=1 / np.log(2)), m, scale),
    }[mean]()
    if variance == "eq21":
        return centre, 4 / (1 + 4 / v) * (centre * (1 - centre)) ** 2
    second = stats.norm.cdf(m - 1, scale=(v + np.pi**2 / 3 - 1) ** 0.5)
    return centre, np.maximum(second - centre**2, 0)


def integral(f: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, scale: np.ndarray) -> Any:
    """The mean of a function with a corner at zero, on both sides of it."""
    z, weights = np.polynomial.legendre.leggauss(200)
    low, high = mean - 12 * scale, mean + 12 * scale
    total = 0.0
    for a, b in ((low, np.clip(0, low, high)), (np.clip(0, low, high), high)):
        x = (a + b)[..., None] / 2 + (b - a)[..., None] / 2 * z
        density = stats.norm.pdf(x, mean[..., None], scale[..., None])
        total = total + (b - a) / 2 * np.sum(weights * f(x) * density, axis=-1)
    return total


def scaled_tanh(m: np.ndarray, v: np.ndarray) -> Any:
    centre, spread = sigmoid("ap2b", "eq21", 2 * m, 4 * v)
    return 2 * centre - 1, 4 * spread


def leaky(slope: float, m: np.ndarray, v: np.ndarray) -> Any:
    """Equations 36 and 39."""
    a = m / v**0.5
    above = stats.logistic.cdf(np.pi * a / 3**0.5)
    centre = m * (slope + (1 - slope) * above) + (1 - slope) * v**0.5 * stats.norm.pdf(a)
    return centre, v * (slope**2 + (1 - slope**2) * stats.logistic.cdf(a / 0.3729))


def by_dilogarithm(m: np.ndarray, v: np.ndarray) -> Any:
    s = v**0.5 / (np.pi / 3**0.5)
    centre = s * np.logaddexp(0, m / s)
    return centre, -2 * s**2 * special.spence(1 + np.exp(m / s)) - centre**2


def step(m: np.ndarray, v: np.ndarray) -> Any:
    centre = stats.logistic.cdf(m, scale=v**0.5 * 3**0.5 / np.pi)
    return centre, centre * (1 - centre)


OF_LOGISTIC = [
    *(
        Rule(Logistic(mean=mean), "sigmoid", partial(sigmoid, mean, "eq21"))
        for mean in ("ap1", "ap2a", "ap2b", "pea")
    ),
    Rule(Logistic(variance="eq22"), "sigmoid", partial(sigmoid, "ap2b", "eq22")),
    Rule(Logistic(), "tanh", scaled_tanh),
    Rule(Logistic(), "relu", partial(leaky, 0.0)),
    Rule(Logistic(), "leaky_relu", partial(leaky, 0.01)),
    Rule(Logistic(relu="dilogarithm"), "relu", by_dilogarithm),
    Rule(Logistic(), "heaviside", step),
]


# -------------------------------------------------------------------------------------------------
# The rows


def tangent(slope: Callable[[np.ndarray], np.ndarray], plain: Callable, mean: Any, variance: Any):
    return plain(mean), slope(mean) ** 2 * variance


RULES = [
    *(Rule(RULEBOOKS["exact"], name, None) for name in ("relu", "tanh", "gelu")),
    *(Rule(RULEBOOKS["dvi"], name, None) for name in ("relu", "heaviside", "tanh")),
    Rule(RULEBOOKS["first_order"], "tanh", partial(tangent, lambda x: np.cosh(x) ** -2, np.tanh)),
    Rule(RULEBOOKS["first_order"], "exp", partial(tangent, np.exp, np.exp)),
    *(Rule(RULEBOOKS["vbp"], name, partial(gates, *lines)) for name, lines in OF_VBP.items()),
    *OF_LOGISTIC,
]
