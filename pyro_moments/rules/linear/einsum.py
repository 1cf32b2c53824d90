"""Rules of Einstein sums and contractions of any axes."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.linear.matrices import einsum as calculus_einsum
from pyro_moments.rules.table import moment_rule
from pyro_moments.rules.torch_shapes import checked_axis, on_meta


@moment_rule(torch.einsum, takes=(MaskedWeight,))
def einsum(equation: Any, *operands: Any) -> Any:
    """Serve ``torch.einsum`` of one or two operands, every letter at most once in each."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not isinstance(equation, str):
        raise UnsupportedMoments(
            "an Einstein sum in the form of lists",
            sites=_sites((equation, *operands)),
            remedy="write the equation as a string, such as 'bi,oi->bo'",
        )
    torch.einsum(equation, *map(on_meta, operands))
    return calculus_einsum(equation, *operands)


def _sites(operands: Any) -> frozenset[str]:
    return frozenset().union(*(getattr(o, "sites", frozenset()) for o in operands))


@moment_rule(torch.tensordot, takes=(MaskedWeight,))
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """Serve ``torch.tensordot``."""
    if out is not None:
        raise UnsupportedMoments(
            "a result written to out=", sites=_sites((a, b)), remedy="leave out= away"
        )
    torch.tensordot(on_meta(a), on_meta(b), dims)
    rank_a, rank_b = len(a.shape), len(b.shape)
    if isinstance(dims, int):
        dims = (range(rank_a - dims, rank_a), range(dims))
    letters_a, letters_b = _LETTERS[:rank_a], list(_LETTERS[rank_a : rank_a + rank_b])
    left, right = (
        [checked_axis(int(d), r) for d in ds] for ds, r in zip(dims, (rank_a, rank_b), strict=True)
    )
    for i, j in zip(left, right, strict=True):
        letters_b[j] = letters_a[i]
    kept = [n for i, n in enumerate(letters_a) if i not in left]
    kept += [n for j, n in enumerate(letters_b) if j not in right]
    return calculus_einsum(f"{letters_a},{''.join(letters_b)}->{''.join(kept)}", a, b)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
