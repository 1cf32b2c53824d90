"""A model all of whose latent sites are hyperparameters: there is no field to condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.cumulant import Corrections
from moment_inference.nested.given.host import ConditionalModel
from moment_inference.nested.sparse import Pattern, Sparse


@dataclass(frozen=True, eq=False)
class WithoutField:
    """A model of hyperparameters alone, whose log joint density needs no Gaussian."""

    model: ConditionalModel

    def at(self, theta: np.ndarray, start: Any = None, floor: float = -np.inf) -> Conditional:
        """Return the log density at points as that of a field without coordinates."""
        value, _, _ = self.model.at_zero(theta)
        nothing, none = np.zeros((len(theta), 0)), np.zeros(0, int)
        matrix = Sparse(Pattern.of(none, none, (0, 0)), nothing)
        log_prior = self.model.log_prior(theta)
        arrays = nothing, matrix, matrix, nothing, nothing, nothing
        return Conditional(theta, log_prior, value, *arrays)


def without_corrections(conditional: Conditional) -> Corrections:
    """Return corrections of what is exact."""
    zero, nothing = np.zeros(len(conditional.theta)), conditional.mean
    return Corrections(zero, nothing, nothing, nothing, zero)
