"""Wrong layers."""

from functools import partial

from moment_calculus import likelihoods
from moment_calculus.likelihoods.multivariate import log_mean_of_normal_powers
from moment_calculus.likelihoods.trials import tempered_poisson
from moment_calculus.numerics.arrays import constants, diagonal, diagonal_matrix
from moment_calculus.operations.elementwise import products, sums
from moment_calculus.operations.elementwise.choices import where
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import einsum
from moment_calculus.operations.linear.reductions import cumulative_sum, reduce_mean, reduce_sum
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.indexing import gather, index
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.values import Gaussian, Spread
from tests.cases.layers import chequered, first_or_last
from tests.cases.row_functions import exp, fixed, times
from tests.cases.tempered import POWER, SCALES
from tests.checks.general import (
    check_batch_invariance,
    check_corners,
    check_float32,
    check_frameworks,
    check_gradients,
    check_oracle,
    check_zero_variance,
)
from tests.mutants import (
    altered,
    detached,
    mixed_batch,
    roughened,
    unrelated,
    wrong_on_jax,
    wrong_rule,
)


def without_squared_mean(x, w, b):
    """Drops S (μ∘μ), the term of the weight's own variance."""
    y = linear(x, w, b)
    lost = (x.mean * x.mean) @ w.variance.mT
    return altered(y, covariance=y.joint_covariance() - diagonal_matrix(lost))


def without_input_noise(x, w, b):
    """Drops S v, the product of the two variances."""
    y = linear(x, w, b)
    return altered(y, covariance=y.joint_covariance() - diagonal_matrix(x.variance @ w.variance.mT))


def without_off_diagonal(x, w, b):
    y = linear(x, w, b)
    return altered(y, covariance=diagonal_matrix(y.variance))


def without_covariance(x):
    return altered(x, covariance=diagonal_matrix(x.variance))


def reversed_(x):
    return index(x, (..., [1, 0]))


def covariance_changed(change):
    def wrong(*operands):
        y = linear(*operands)
        return altered(y, covariance=change(y.joint_covariance()))

    return wrong


def mean_changed(change):
    def wrong(*operands):
        y = linear(*operands)
        return altered(y, mean=change(y.mean))

    return wrong


def transposed(w):
    return Gaussian(w.mean.mT, Spread(w.variance.mT), support=w.support, propagation=w.propagation)


def product_without_covariance(x, y):
    """The formula of independent factors."""
    z = products.multiply(unrelated(x), y)
    return Gaussian(z.mean, Spread(z.variance, z.covariance), propagation=z.propagation)


def product_without_variances(x, y):
    z = products.multiply(x, y)
    lost = diagonal_matrix(x.variance * y.variance)
    return altered(z, covariance=z.joint_covariance() - lost)


LAYER_MUTANTS = [
    wrong_rule("no S μ² term", check_oracle, "linear", without_squared_mean),
    wrong_rule("no S v term", check_oracle, "linear_joint_input", without_input_noise),
    wrong_rule("no off-diagonal", check_oracle, "linear_joint_input", without_off_diagonal),
    wrong_rule(
        "covariance with the wrong sign", check_oracle, "linear", covariance_changed(lambda c: -c)
    ),
    wrong_rule(
        "transposed weight", check_oracle, "linear", lambda x, w, b: linear(x, transposed(w), b)
    ),
    wrong_rule("input and weight swapped", check_oracle, "linear", lambda x, w, b: linear(w, x, b)),
    wrong_rule("certain weight", check_oracle, "linear", lambda x, w, b: linear(x, w.mean, b)),
    wrong_rule(
        "certain bias", check_oracle, "linear_certain_input", lambda x, w, b: linear(x, w, b.mean)
    ),
    wrong_rule("bias lost", check_oracle, "linear_certain_bias", lambda x, w, b: linear(x, w)),
    wrong_rule(
        "standard deviations for variances",
        check_oracle,
        "linear_without_bias",
        covariance_changed(lambda c: abs(c) ** 0.5),
    ),
    wrong_rule("jitter", check_zero_variance, "linear", covariance_changed(lambda c: c + 1e-4)),
    wrong_rule("batch statistics", check_batch_invariance, "linear", mean_changed(mixed_batch)),
    wrong_rule(
        "gradient of the covariance lost", check_gradients, "linear", covariance_changed(detached)
    ),
    wrong_rule("gradient of the mean lost", check_gradients, "linear", mean_changed(detached)),
    wrong_rule("overflow", check_corners, "linear", covariance_changed(lambda c: c * 1e20 * 1e-20)),
    wrong_rule("rounding", check_float32, "linear", mean_changed(roughened)),
    wrong_rule("one framework differs", check_frameworks, "linear", mean_changed(wrong_on_jax)),
    wrong_rule("difference for sum", check_oracle, "add", sums.subtract),
    wrong_rule(
        "terms taken as independent",
        check_oracle,
        "residual",
        lambda x, w: sums.add(unrelated(x), linear(x, w)),
    ),
    wrong_rule(
        "operands taken as independent",
        check_oracle,
        "difference_of_dependent",
        lambda x: sums.subtract(unrelated(x), fixed(x)),
    ),
    wrong_rule("operands swapped", check_oracle, "subtract", lambda x, y: sums.subtract(y, x)),
    wrong_rule("shift scaled", check_oracle, "affine", lambda x: scale_shift(x, -2.0, -3.0)),
    wrong_rule(
        "product of the variances lost", check_oracle, "multiply", product_without_variances
    ),
    wrong_rule(
        "factors taken as independent",
        check_oracle,
        "product_of_dependent",
        lambda x: product_without_covariance(x, fixed(x)),
    ),
    wrong_rule(
        "square of independent copies",
        check_oracle,
        "square",
        lambda x: product_without_covariance(x, x),
    ),
    wrong_rule("multiplied", check_oracle, "divide", products.multiply),
    wrong_rule(
        "parts taken as independent",
        check_oracle,
        "concatenate",
        lambda x, y: concatenate([x, unrelated(fixed(x)), y], -1),
    ),
    wrong_rule(
        "parts in another order",
        check_oracle,
        "concatenate",
        lambda x, y: concatenate([y, fixed(x), x], -1),
    ),
    wrong_rule(
        "features taken as independent",
        check_oracle,
        "sum",
        lambda x: reduce_sum(without_covariance(x), [1]),
    ),
    wrong_rule(
        "mean of independent copies",
        check_oracle,
        "centred",
        lambda x: sums.subtract(x, reduce_mean(unrelated(x), [1], keepdims=True)),
    ),
    wrong_rule(
        "elements of the batch taken as one",
        check_oracle,
        "sum_of_independent",
        lambda x: altered(
            reduce_sum(x, [0]), covariance=2 * diagonal_matrix(reduce_sum(x, [0]).variance)
        ),
    ),
    wrong_rule("another axis", check_oracle, "permute", lambda x: permute(x, (2, 0, 1)[::-1])),
    wrong_rule(
        "another order", check_oracle, "cumulative_sum", lambda x: cumulative_sum(reversed_(x), 1)
    ),
    wrong_rule(
        "branches swapped", check_oracle, "where", lambda x, y: where(chequered(x.mean), y, x)
    ),
    wrong_rule(
        "weight transposed", check_oracle, "einsum_linear", lambda x, w: einsum("bi,io->bo", x, w)
    ),
    wrong_rule(
        "chosen features taken as independent",
        check_oracle,
        "gather",
        lambda x: without_covariance(gather(x, first_or_last(x.mean), 1)),
    ),
]


def of_vector(y, f, power=POWER, kept=lambda covariance: covariance):
    """The row's own rule, but for what is changed."""
    scale = constants(SCALES, f.mean)
    return log_mean_of_normal_powers(y - f.mean, kept(f.joint_covariance()), scale, power) / power


def variances(covariance):
    return diagonal_matrix(diagonal(covariance))


TEMPERED_MUTANTS = [
    wrong_rule("power lost", check_oracle, "tempered_normal", likelihoods.normal_log_predictive),
    wrong_rule("expectation", check_oracle, "tempered_normal", likelihoods.normal),
    wrong_rule(
        "variance not tempered",
        check_oracle,
        "tempered_normal",
        lambda y, f, s: likelihoods.normal_log_predictive(y, f, s * POWER**-0.5),
    ),
    wrong_rule(
        "variances only",
        check_oracle,
        "tempered_dependent_normals",
        partial(of_vector, kept=variances),
    ),
    wrong_rule(
        "power of one", check_oracle, "tempered_dependent_normals", partial(of_vector, power=1.0)
    ),
    wrong_rule(
        "power outside",
        check_oracle,
        "tempered_poisson",
        lambda y, f: POWER * tempered_poisson(1.0, y, times(exp(f), 2.0)),
    ),
    wrong_rule("mean alone", check_oracle, "tempered_factor", lambda f: f.mean),
]
