"""Rows of activations: the rule, and the function that a user calls."""

from __future__ import annotations

import torch
from torch.nn.functional import leaky_relu

from moment_calculus.activations import Exp, Heaviside, LeakyReLU, ReLU, Sigmoid, Tanh
from tests.kinds import ActivationCase

ACTIVATIONS = [
    ActivationCase("relu", ReLU(), torch.relu, dvi_error=2e-3),
    ActivationCase("leaky_relu", LeakyReLU(0.1), lambda x: leaky_relu(x, 0.1), dvi_error=2e-3),
    ActivationCase("leaky_relu_steep", LeakyReLU(-0.5), lambda x: leaky_relu(x, -0.5)),
    ActivationCase("heaviside", Heaviside(), lambda x: torch.heaviside(x, 0 * x), dvi_error=2e-2),
    ActivationCase("sigmoid", Sigmoid(), torch.sigmoid, exact_pairs=False),
    ActivationCase("tanh", Tanh(), torch.tanh, exact_pairs=False),
    ActivationCase("exp", Exp(), torch.exp, kinks=(), largest_scale=3.0, growth=1.0),
]
