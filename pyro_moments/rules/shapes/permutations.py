"""Rules of permutations of the axes, which move the feature axis along."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.operations import shapes
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named
from pyro_moments.rules.torch_shapes import permutation_of

_T, _MT, _H, _MH = (getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH"))


@moment_rule(_MT, _MH, *named("adjoint"), takes=(MaskedWeight,), view=True)
def transpose_last(input: Value) -> Value:
    """Serve ``.mT``, ``.mH`` and ``adjoint`` of matrices."""
    return shapes.permute(input, permutation_of(input, lambda a: a.mT))


@moment_rule(_T, takes=(MaskedWeight,), view=True)
def transpose_all(input: Value) -> Value:
    """Serve ``.T``."""
    return shapes.permute(input, range(len(input.shape))[::-1])


@moment_rule(_H, *named("t"), takes=(MaskedWeight,), view=True)
def transpose_matrix(input: Value) -> Value:
    """Serve ``.H`` and ``t`` of a matrix."""
    return shapes.permute(input, permutation_of(input, lambda a: a.t()))


@moment_rule(*named("transpose", "swapaxes", "swapdims"), takes=(MaskedWeight,), view=True)
def transpose(input: Value, dim0: int, dim1: int) -> Value:
    """Serve ``transpose`` and ``swapaxes`` of any two axes."""
    return shapes.permute(input, permutation_of(input, lambda a: a.transpose(dim0, dim1)))


@moment_rule(*named("permute"), takes=(MaskedWeight,), view=True)
def permute(input: Value, *dims: Any) -> Value:
    """Serve ``permute``."""
    return shapes.permute(input, permutation_of(input, lambda a: a.permute(*dims)))


@moment_rule(*named("movedim", "moveaxis"), takes=(MaskedWeight,), view=True)
def movedim(input: Value, source: Any, destination: Any) -> Value:
    """Serve ``movedim`` and ``moveaxis``."""
    return shapes.permute(input, permutation_of(input, lambda a: a.movedim(source, destination)))
