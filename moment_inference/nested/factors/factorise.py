"""The factorisation that a pattern asks for."""

from __future__ import annotations

from moment_inference.nested.factors.base import Factors
from moment_inference.nested.factors.bordered import BorderedFactors
from moment_inference.nested.factors.dense import DenseFactors
from moment_inference.nested.factors.ordering import best_ordering
from moment_inference.nested.factors.places import Places
from moment_inference.nested.sparse import Pattern, Sparse


def factorise(matrix: Sparse) -> Factors:
    """Return Cholesky factors of precisions, by the structure that their pattern has.

    Bands with a border where the pattern has them (local latents, groups, chains, maps), dense
    where that is faster; decided once per pattern.
    """
    places = matrix.pattern.remember("places of factors", lambda: _places(matrix.pattern))
    return DenseFactors(matrix) if places is None else BorderedFactors(matrix, places)


def _places(pattern: Pattern) -> Places | None:
    ordering = best_ordering(pattern)
    return None if ordering is None else Places(ordering)
