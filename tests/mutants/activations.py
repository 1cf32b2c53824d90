"""Wrong activations."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.functions.table import Activation
from moment_calculus.numerics.arrays import namespace, outer, safe_scale
from moment_calculus.numerics.normal import cdf, pdf
from tests.checks.activations import (
    check_certificate,
    check_dvi,
    check_hermite,
    check_moments,
    check_pairs,
    check_positive_semi_definite,
    check_single_precision,
)
from tests.checks.general import (
    check_batch_invariance,
    check_corners,
    check_float32,
    check_frameworks,
    check_gradients,
    check_range,
    check_zero_variance,
)
from tests.mutants import Mutant, detached, held_on_jax, mixed_batch, roughened, row, wrong_on_jax


def with_activation(name: str, **methods: Callable) -> tuple[Any, Any]:
    """The row of an activation, and a copy in which methods are replaced.

    A replacement gets the original method and the arguments.
    """
    original = row(name)

    def bind(method: str, replacement: Callable) -> Callable:
        right = getattr(original.activation, method)
        return lambda self, *arguments: replacement(right, *arguments)

    kind = type(original.activation)
    members = {method: bind(method, wrong) for method, wrong in methods.items()}
    wrong: Activation = type("Wrong", (kind,), members)(**dataclasses.asdict(original.activation))
    return original, dataclasses.replace(original, activation=wrong)


def activation_mutant(mistake: str, check: Callable, name: str, **methods: Callable) -> Mutant:
    return Mutant(mistake, *with_activation(name, **methods), check)


# ---------------------------------------------------------------------------------------------
# Moments of activations


def second(change: Callable) -> Callable:
    """Change the variance, given (mean, variance) of the result."""

    def wrong(right: Callable, mean: Any, variance: Any) -> tuple[Any, Any]:
        centre, spread = right(mean, variance)
        return centre, change(centre, spread)

    return wrong


def first(change: Callable) -> Callable:
    """Change the mean of the result."""

    def wrong(right: Callable, mean: Any, variance: Any) -> tuple[Any, Any]:
        centre, spread = right(mean, variance)
        return change(centre), spread

    return wrong


def without_density(right: Callable, mean: Any, variance: Any) -> tuple[Any, Any]:
    return mean * cdf(mean / safe_scale(variance)), right(mean, variance)[1]


def truncated_normal(right: Callable, mean: Any, variance: Any) -> tuple[Any, Any]:
    """P(x > 0) E[x | x > 0], right on paper, and 0/0 in the tail."""
    scale = safe_scale(variance)
    reach = cdf(mean / scale)
    return reach * (mean + scale * pdf(mean / scale) / reach), right(mean, variance)[1]


def erratum(right: Callable, mean: Any, variance: Any) -> tuple[Any, Any]:
    """The misprint of [FUP]'s summary table: v (α² + (1 − α²) R)."""
    share = row("relu").activation.moments(mean, variance)[1]
    return right(mean, variance)[0], 0.01 * variance + 0.99 * share


def delta_method(right: Callable, mean: Any, variance: Any) -> tuple[Any, Any]:
    value = 1 / (1 + namespace(mean).exp(-mean))
    return value, (value * (1 - value)) ** 2 * variance


def probit_approximation(right: Callable, mean: Any, variance: Any) -> tuple[Any, Any]:
    return cdf(mean / (variance + np.pi**2 / 3) ** 0.5), right(mean, variance)[1]


MOMENTS = [
    activation_mutant(
        "variance with the wrong sign", check_moments, "relu", moments=second(lambda m, v: -v)
    ),
    activation_mutant(
        "second moment for the variance",
        check_moments,
        "relu",
        moments=second(lambda m, v: v + m * m),
    ),
    activation_mutant(
        "half the variance", check_moments, "exp", moments=second(lambda m, v: v / 2)
    ),
    activation_mutant(
        "mean with the wrong sign", check_moments, "tanh", moments=first(lambda m: -m)
    ),
    activation_mutant(
        "mean without its density term", check_moments, "relu", moments=without_density
    ),
    activation_mutant(
        "mean and variance swapped",
        check_moments,
        "sigmoid",
        moments=lambda right, m, v: right(v, abs(m)),
    ),
    activation_mutant(
        "standard deviation for variance",
        check_moments,
        "exp",
        moments=lambda right, m, v: right(m, v**0.5),
    ),
    activation_mutant("misprinted variance", check_moments, "leaky_relu", moments=erratum),
    activation_mutant(
        "first order instead of exact", check_moments, "sigmoid", moments=delta_method
    ),
    activation_mutant(
        "probit approximation", check_moments, "sigmoid", moments=probit_approximation
    ),
    activation_mutant(
        "gain without derivative", check_moments, "relu", gain=lambda right, m, v: m * 0 + 1
    ),
    activation_mutant(
        "gain times the scale", check_moments, "tanh", gain=lambda right, m, v: right(m, v) * v**0.5
    ),
    activation_mutant(
        "gain of the mirror image",
        check_moments,
        "leaky_relu",
        gain=lambda right, m, v: right(-m, v),
    ),
    activation_mutant(
        "floor under the variance",
        check_zero_variance,
        "heaviside",
        moments=lambda right, m, v: right(m, v + 0.01),
    ),
    activation_mutant(
        "batch statistics", check_batch_invariance, "relu", moments=first(mixed_batch)
    ),
    activation_mutant(
        "gradient of the mean lost", check_gradients, "sigmoid", moments=first(detached)
    ),
    activation_mutant(
        "gradient of the variance lost",
        check_gradients,
        "relu",
        moments=second(lambda m, v: detached(v)),
    ),
    activation_mutant(
        "quotient of two underflows", check_corners, "relu", moments=truncated_normal
    ),
    activation_mutant(
        "quotient of underflows somewhere", check_range, "relu", moments=truncated_normal
    ),
    activation_mutant("rounding", check_float32, "tanh", moments=first(roughened)),
    activation_mutant(
        "rounding of a small variance",
        check_single_precision,
        "gelu",
        moments=second(lambda m, v: (v + 1) - 1),
    ),
    activation_mutant(
        "one framework differs", check_frameworks, "exp", moments=first(wrong_on_jax)
    ),
    activation_mutant(
        "gradient lost on one framework", check_frameworks, "sin", moments=first(held_on_jax)
    ),
]

# ---------------------------------------------------------------------------------------------
# Pairs of activations


def linear_gate(right: Callable, mean: Any, variance: Any, covariance: Any) -> Any:
    reach = cdf(mean / safe_scale(variance))
    return covariance * outer(reach, reach)


def cross_term_of_public_code(right: Callable, mean: Any, variance: Any, covariance: Any) -> Any:
    """The sign of the cross term does not follow ρ."""
    return np.sign(covariance) * right(mean, variance, abs(covariance))


def alternating(right: Callable, mean: Any, variance: Any, order: int) -> list[Any]:
    return [(-1) ** n * term for n, term in enumerate(right(mean, variance, order))]


def unnormalised(right: Callable, mean: Any, variance: Any, order: int) -> list[Any]:
    return [term * (n + 1) ** 0.5 for n, term in enumerate(right(mean, variance, order))]


def pair(change: Callable) -> Callable:
    return lambda right, mean, variance, covariance: change(right(mean, variance, covariance))


PAIRS = [
    activation_mutant(
        "sign of the correlation lost",
        check_pairs,
        "relu",
        pair_covariance=lambda right, m, v, c: right(m, v, abs(c)),
    ),
    activation_mutant(
        "sign of a step's correlation lost",
        check_pairs,
        "heaviside",
        pair_covariance=cross_term_of_public_code,
    ),
    activation_mutant("linear gate only", check_pairs, "relu", pair_covariance=linear_gate),
    activation_mutant(
        "transposed means",
        check_pairs,
        "leaky_relu",
        pair_covariance=lambda right, m, v, c: right(m[..., ::-1], v, c),
    ),
    activation_mutant(
        "product of means kept", check_pairs, "exp", pair_covariance=pair(lambda c: c + 1e-3)
    ),
    activation_mutant(
        "no covariance", check_pairs, "leaky_relu_steep", pair_covariance=pair(lambda c: 0 * c)
    ),
    activation_mutant(
        "covariance too large",
        check_positive_semi_definite,
        "relu",
        pair_covariance=pair(lambda c: 1.5 * c),
    ),
    activation_mutant(
        "gradient of the covariance lost", check_gradients, "relu", pair_covariance=pair(detached)
    ),
    activation_mutant(
        "batch statistics of pairs",
        check_batch_invariance,
        "heaviside",
        pair_covariance=pair(mixed_batch),
    ),
    activation_mutant(
        "sign of the cross term", check_dvi, "heaviside", dvi_covariance=cross_term_of_public_code
    ),
    activation_mutant(
        "linear gate for the paper",
        check_dvi,
        "relu",
        dvi_covariance=lambda right, m, v, c: 0.9 * right(m, v, c),
    ),
    activation_mutant("signs of coefficients", check_hermite, "sigmoid", hermite=alternating),
    activation_mutant("norm of coefficients", check_certificate, "tanh", hermite=unnormalised),
    activation_mutant(
        "a coefficient lost",
        check_pairs,
        "sigmoid",
        hermite=lambda right, m, v, n: [0 * m, *right(m, v, n)[1:]],
    ),
]
