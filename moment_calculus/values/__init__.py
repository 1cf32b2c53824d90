"""The values that flow through a program, and how they depend on each other."""

from __future__ import annotations

from moment_calculus.values.composed import ComposedDeferred, FusedDeferred
from moment_calculus.values.covariances import cross_covariance, elementwise_covariance, share_sites
from moment_calculus.values.deferred import AffineDeferred, Deferred
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.layout import (
    Jacobian,
    features_last,
    from_features_last,
    gain_map,
    identity_map,
)

__all__ = [
    "AffineDeferred",
    "ComposedDeferred",
    "Deferred",
    "FusedDeferred",
    "Gaussian",
    "Jacobian",
    "Value",
    "cross_covariance",
    "elementwise_covariance",
    "features_last",
    "from_features_last",
    "gain_map",
    "identity_map",
    "share_sites",
]

Value = Gaussian | Deferred
