"""The case table: one row for every rule. A row brings all properties of ``tests/properties.py``.

A row names the rule and the plain function of which it gives the moments; the tests integrate the
plain function by themselves, so that no formula is written twice.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import leaky_relu, linear

from moment_calculus import divergences, likelihoods
from moment_calculus import operations as ops
from moment_calculus.activations import Exp, Heaviside, LeakyReLU, ReLU, Sigmoid, Tanh
from moment_calculus.concatenation import concatenate
from moment_calculus.indexing import index, unstack
from moment_calculus.linear import linear as gaussian_linear
from moment_calculus.linear import matmul
from moment_calculus.rulebooks import Propagation
from moment_calculus.shapes import reshape, swap_last
from moment_calculus.unary import scale_shift
from tests import oracles
from tests import row_functions as functions
from tests.kinds import ActivationCase, DivergenceCase
from tests.operand_kinds import LayerCase, Operand
from tests.row_functions import ALPHA, BETA, SET, fixed, likelihood

DIAGONAL = Propagation(covariance="diagonal")

# ---------------------------------------------------------------------------------------------
# Activations

ACTIVATIONS = [
    ActivationCase("relu", ReLU(), torch.relu, dvi_error=2e-3),
    ActivationCase("leaky_relu", LeakyReLU(0.1), lambda x: leaky_relu(x, 0.1), dvi_error=2e-3),
    ActivationCase("leaky_relu_steep", LeakyReLU(-0.5), lambda x: leaky_relu(x, -0.5)),
    ActivationCase("heaviside", Heaviside(), lambda x: torch.heaviside(x, 0 * x), dvi_error=2e-2),
    ActivationCase("sigmoid", Sigmoid(), torch.sigmoid, exact_pairs=False),
    ActivationCase("tanh", Tanh(), torch.tanh, exact_pairs=False),
    ActivationCase("exp", Exp(), torch.exp, kinks=(), largest_scale=3.0, growth=1.0),
]

# ---------------------------------------------------------------------------------------------
# Layers

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

# ---------------------------------------------------------------------------------------------
# Likelihoods

DATA = Operand((3,), "certain")
LATENT = Operand((3,))
SCALE = Operand((3,), "positive")
HEADS = Operand((3, 2), "correlated", spread=0.4)
LOG_SCALE = Operand((3,), spread=0.4)
SCORES = Operand((3, 3), "certain")
LOGITS = Operand((3, 3), "correlated")

LIKELIHOODS = [
    likelihood("normal", (DATA, LATENT, SCALE), likelihoods.normal, functions.log_normal_density),
    likelihood(
        "normal_value", (LATENT, DATA, SCALE), likelihoods.normal, functions.log_normal_density
    ),
    likelihood(
        "normal_both", (LATENT, LATENT, SCALE), likelihoods.normal, functions.log_normal_density
    ),
    likelihood(
        "normal_heteroscedastic",
        (DATA, HEADS),
        functions.heads(functions.halved_exp),
        functions.plain_heads(lambda h: 0.5 * h.exp()),
        extremes=False,
    ),
    likelihood(
        "normal_independent_scale",
        (DATA, LATENT, LOG_SCALE),
        functions.apart(functions.halved_exp),
        functions.plain_apart(lambda h: 0.5 * h.exp()),
        extremes=False,
    ),
    likelihood(
        "normal_certain_loc",
        (DATA, DATA, LOG_SCALE),
        functions.apart(functions.halved_exp),
        functions.plain_apart(lambda h: 0.5 * h.exp()),
        extremes=False,
    ),
    likelihood(
        "normal_shifted_scale",
        (DATA, HEADS),
        functions.heads(functions.shifted_exp),
        functions.plain_heads(lambda h: h.exp() + 0.2),
        extremes=False,
    ),
    likelihood(
        "normal_bounded_scale",
        (DATA, HEADS),
        functions.heads(functions.bounded),
        functions.plain_heads(lambda h: 2 * h.sigmoid() + 0.1),
        extremes=False,
    ),
    likelihood(
        "normal_log_predictive",
        (DATA, LATENT, SCALE),
        likelihoods.normal_log_predictive,
        functions.log_normal_density,
        log_mean=True,
        nodes=200,
    ),
    likelihood(
        "normal_log_predictive_heteroscedastic",
        (DATA, HEADS),
        functions.heads(functions.shifted_exp, likelihoods.normal_log_predictive),
        functions.plain_heads(lambda h: h.exp() + 0.2),
        log_mean=True,
        nodes=100,
        extremes=False,
    ),
    likelihood(
        "predictive_mean",
        (HEADS,),
        functions.predictive(0),
        lambda out: out[..., 0],
        extremes=False,
    ),
    likelihood(
        "predictive_aleatoric",
        (HEADS,),
        functions.predictive(2),
        lambda out: 0.25 * (2 * out[..., 1]).exp(),
        extremes=False,
    ),
    likelihood(
        "categorical_delta",
        (SCORES, LOGITS),
        functions.categorical("delta"),
        functions.categorical_log_density,
        status="second order",
        nodes=24,
    ),
    likelihood(
        "categorical_delta_independent",
        (SCORES, Operand((3, 3))),
        functions.categorical("delta"),
        functions.categorical_log_density,
        status="second order",
        nodes=24,
        propagation=DIAGONAL,
    ),
    likelihood(
        "categorical_jensen",
        (SCORES, LOGITS),
        functions.categorical("jensen"),
        functions.categorical_log_density,
        status="lower bound",
        nodes=24,
    ),
]

# ---------------------------------------------------------------------------------------------
# Divergences

DIVERGENCES = [
    DivergenceCase(
        "gaussian_kl",
        ((3, 4),) * 4,
        (1, 3),
        lambda m, s, m0, s0: divergences.gaussian_kl(m, s * s, m0, s0 * s0),
        oracles.gaussian_kl,
    ),
    DivergenceCase(
        "gaussian_entropy",
        ((3, 4),),
        (0,),
        lambda s: divergences.gaussian_entropy(s * s),
        oracles.gaussian_entropy,
    ),
    DivergenceCase(
        "empirical_bayes_variance",
        ((3, 4), (3, 4)),
        (1,),
        lambda m, s: divergences.empirical_bayes_variance(m, s * s, ALPHA, BETA, SET)[:, 0],
        functions.by_rows(lambda m, s: oracles.best_prior_variance(m, s, ALPHA, BETA)),
    ),
    DivergenceCase(
        "empirical_bayes_log_prior",
        ((3, 4), (3, 4)),
        (1,),
        lambda m, s: divergences.empirical_bayes_log_prior(m, s * s, ALPHA, BETA, SET),
        functions.by_rows(functions.log_prior_of_set),
    ),
    DivergenceCase(
        "student_t",
        ((3,),),
        (0,),
        lambda q: divergences.student_t_log_prob(q, 4, ALPHA, BETA, math.lgamma),
        functions.by_rows(lambda q: oracles.marginal_log_density(q, 4, ALPHA, BETA)),
    ),
]
