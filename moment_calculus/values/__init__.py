"""The values that flow through a program, and how they depend on each other."""

from __future__ import annotations

from moment_calculus.values.covariances import cross_covariance, elementwise_covariance
from moment_calculus.values.deferred import Deferred
from moment_calculus.values.gaussian import Gaussian, Root
from moment_calculus.values.spread import (
    Spread,
    Ties,
    features_last,
    from_features_last,
    share_sites,
)
from moment_calculus.values.step import Opaque, Step

__all__ = [
    "Deferred",
    "Gaussian",
    "Opaque",
    "Root",
    "Spread",
    "Step",
    "Ties",
    "Value",
    "cross_covariance",
    "elementwise_covariance",
    "features_last",
    "from_features_last",
    "share_sites",
]

Value = Gaussian | Deferred
