"""Blocks of coordinates of which each leans on the one before: y_t = A_t y_{t−1} + b_t.

All steps are taken at once, by products of 2, 4, 8, … transitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moment_calculus.numerics.arrays import Array, device, namespace


class Chain:
    """The transitions A_1 … A_{n−1} between n blocks of k coordinates, [n − 1, k, k].

    Independent blocks are a chain without transitions, [0, k, k].
    """

    def __init__(self, links: Array) -> None:
        self.links = links
        self.powers = list[Array]()  # A_t … A_{t−s+1} for s = 1, 2, 4, …, [n − s, k, k]
        power, step = links, 1
        while power.shape[0]:
            self.powers.append(power)
            power = power[step:] @ power[:-step]
            step *= 2

    @property
    def steps(self) -> Sequence[tuple[int, Array]]:
        """Return numbers of steps, and the transitions over so many."""
        return [(2**at, power) for at, power in enumerate(self.powers)]

    def solve(self, terms: Array) -> Array:
        """Return y_t = A_t y_{t−1} + b_t for terms b, [..., n, k, c]."""
        for step, power in self.steps:
            later = terms[..., step:, :, :] + power @ terms[..., :-step, :, :]
            terms = _joined(terms[..., :step, :, :], later)
        return terms

    def remainders(self, values: Array) -> Array:
        """Return the terms b_t = y_t − A_t y_{t−1} of values y, [..., n, k, c]."""
        if not self.powers:
            return values
        later = values[..., 1:, :, :] - self.links @ values[..., :-1, :, :]
        return _joined(values[..., :1, :, :], later)

    def solve_transposed(self, terms: Array) -> Array:
        """Return the transpose of ``solve`` times terms: y_t = A_{t+1}ᵀ y_{t+1} + b_t."""
        for step, power in self.steps:
            earlier = terms[..., :-step, :, :] + power.mT @ terms[..., step:, :, :]
            terms = _joined(earlier, terms[..., -step:, :, :])
        return terms

    def covariances(self, terms: Array) -> Array:
        """Return S_t = A_t S_{t−1} A_tᵀ + B_t for terms B, [n, k, k]."""
        for step, power in self.steps:
            terms = _joined(terms[:step], terms[step:] + power @ terms[:-step] @ power.mT)
        return terms

    def covariances_transposed(self, terms: Array) -> Array:
        """Return the transpose of ``covariances`` times terms, [n, k, k]."""
        for step, power in self.steps:
            terms = _joined(terms[:-step] + power.mT @ terms[step:] @ power, terms[-step:])
        return terms

    def moved(self, rows: Array, places: Array, distances: Array) -> Array:
        """Return rows [..., k] times the transitions to blocks from those so many steps before.

        Places and distances may be NumPy's, of which only what they need is computed.
        """
        xp = namespace(places)
        for step, power in self.steps:
            takes = (distances // step) % 2 == 1
            if isinstance(takes, np.ndarray) and not takes.any():
                continue
            before = xp.where(takes, places - step, places)
            own = power[xp.where(takes, before, 0 * before)]
            rows = _where(takes, (rows[..., None, :] @ own)[..., 0, :], rows)
            places = before
        return rows


def _where(takes: Array, ours: Array, others: Array) -> Array:
    """Return rows of ours where it takes them, and others elsewhere."""
    xp = namespace(ours)
    return xp.where(xp.asarray(takes, device=device(ours))[..., None], ours, others)


def _joined(first: Array, second: Array) -> Array:
    xp = namespace(first)
    return xp.concat([first, second], axis=-3)
