"""Moments of Gaussians under the operations of a model, on NumPy, torch and JAX arrays alike."""

from moment_calculus import errors
from moment_calculus.errors import (
    MEAN_FIELD_GUIDES,
    CaptureWarning,
    CovarianceDroppedWarning,
    DependenceWarning,
    LossByDrawsWarning,
    UnsupportedMoments,
    warn_user,
)

__all__ = ["MEAN_FIELD_GUIDES", "CaptureWarning", "CovarianceDroppedWarning"]
__all__ += ["DependenceWarning", "LossByDrawsWarning", "UnsupportedMoments", "errors"]
__all__ += ["warn_user"]


__version__ = "0.1.0"
