"""What linear response refuses, and what it warns of."""

from __future__ import annotations

import numpy as np


class NotAnOptimum(ValueError):
    """The parameters are no optimum of the loss, so that its curvature there says nothing."""


class NarrowerVarianceWarning(UserWarning):
    """Corrected variances are smaller than those of the guide, which mean field's rarely are."""


class FlatDirection(ValueError):
    """A quantity depends on what neither priors nor data determine."""


class Indefinite(Exception):
    """A matrix that should be positive definite is not.

    Args:
        eigenvalue: the smallest that was found, relative to the units of ``direction``.
        direction: of the parameters, along which the loss curves downwards, [n].
    """

    def __init__(self, eigenvalue: float, direction: np.ndarray) -> None:
        super().__init__(eigenvalue)
        self.eigenvalue, self.direction = eigenvalue, direction


class Undetermined(Exception):
    """A quantity depends on a direction of the parameters along which the loss is flat.

    Args:
        direction: of the parameters, [n].
    """

    def __init__(self, direction: np.ndarray) -> None:
        super().__init__()
        self.direction = direction
