"""Errors and warnings of linear response."""

from __future__ import annotations

import numpy as np


class NotAnOptimum(ValueError):
    """The parameters are no optimum of the loss, so that its curvature there says nothing."""


class NarrowerVarianceWarning(UserWarning):
    """Corrected variances are smaller than the guide's, which is rare for a mean-field guide."""


class FlatDirection(ValueError):
    """A quantity depends on a direction that neither priors nor data determine."""


class Indefinite(Exception):
    """A matrix that should be positive definite has a direction [n] of negative curvature."""

    def __init__(self, eigenvalue: float, direction: np.ndarray) -> None:
        super().__init__(eigenvalue)
        self.eigenvalue, self.direction = eigenvalue, direction


class Undetermined(Exception):
    """A quantity depends on a direction [n] of the parameters along which the loss is flat."""

    def __init__(self, direction: np.ndarray) -> None:
        super().__init__()
        self.direction = direction
