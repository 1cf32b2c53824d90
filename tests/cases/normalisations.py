"""Rows of normalisations, approximations: everything but the oracle is asked of them.

``tests/operations/test_normalisation.py`` measures their errors.
"""

import torch

from moment_calculus.operations.normalised.normalisation import normalise
from moment_calculus.operations.normalised.softmax import logsumexp_value, softmax_value
from moment_calculus.values.propagation import Propagation
from tests.cases.operand_kinds import LayerCase, Operand

DIAGONAL = Propagation(covariance="diagonal")


def layer_norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def rms_norm(x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-5)


WIDE = Operand((2, 6), "correlated")
APART = Operand((2, 6))
NORMALISATIONS = [
    LayerCase("layer_norm", (WIDE,), lambda x: normalise(x, eps=1e-5), layer_norm),
    LayerCase(
        "layer_norm_diagonal",
        (APART,),
        lambda x: normalise(x, eps=1e-5),
        layer_norm,
        propagation=DIAGONAL,
    ),
    LayerCase("rms_norm", (WIDE,), lambda x: normalise(x, eps=1e-5, centred=False), rms_norm),
    LayerCase("softmax", (WIDE,), softmax_value, lambda x: x.softmax(-1)),
    LayerCase(
        "softmax_diagonal", (APART,), softmax_value, lambda x: x.softmax(-1), propagation=DIAGONAL
    ),
    LayerCase("logsumexp", (WIDE,), logsumexp_value, lambda x: x.logsumexp(-1, keepdim=True)),
]
