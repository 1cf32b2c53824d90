"""Structures of effects of places: neighbours on a map, or in any graph."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from moment_inference.structures.spectrum import Spectrum


def map_of(edges: Any, places: int) -> Spectrum:
    """Return the spectrum of an intrinsic autoregression on a graph, by pairs of neighbours [m, 2].

    Every connected part sums to zero and has a typical variance of 1; a place without neighbours
    has variance 1. Source: Freni-Sterrantino, Ventrucci and Rue 2018.
    """
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise ValueError(f"edges of shape {pairs.shape} and type {pairs.dtype} are no pairs [m, 2]")
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError("edges: a place is named as a neighbour of itself")
    if len(pairs) and not 0 <= pairs.min() <= pairs.max() < places:
        raise ValueError(f"edges name places {pairs.min()} to {pairs.max()}, of 0 to {places - 1}")
    return _map_of(np.sort(pairs.astype(np.int64), axis=1).tobytes(), places)


@functools.lru_cache(maxsize=16)
def _map_of(edges: bytes, places: int) -> Spectrum:
    pairs = np.unique(np.frombuffer(edges, np.int64).reshape(-1, 2), axis=0)
    adjacent = np.zeros((places, places))
    adjacent[pairs[:, 0], pairs[:, 1]] = adjacent[pairs[:, 1], pairs[:, 0]] = 1
    laplacian = np.diag(adjacent.sum(0)) - adjacent
    _, part_of = connected_components(coo_array(adjacent), directed=False)
    vectors, variances = np.zeros((places, places)), np.ones(places)
    for part in range(part_of.max(initial=-1) + 1):
        members = np.flatnonzero(part_of == part)
        block = np.ix_(members, members)
        vectors[block] = 1
        if len(members) > 1:
            own = Spectrum.of(laplacian[block])
            vectors[block], variances[members] = own.vectors, own.variances
    return Spectrum(vectors, variances)
