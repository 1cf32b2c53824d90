"""The values that flow through a program, and how they depend on each other."""

from __future__ import annotations

from moment_calculus.values.covariances import cross_covariance, elementwise_covariance
from moment_calculus.values.deferred import Composite, Deferred, PendingWeight
from moment_calculus.values.gaussian import Gaussian, Root, is_weight
from moment_calculus.values.propagation import (
    FunctionRegistry,
    Propagation,
    RuleBook,
    check_choice,
    check_draws,
)
from moment_calculus.values.spread import (
    ALL,
    Spread,
    Support,
    Ties,
    batch_shape,
    broadcast_shape,
    features_last,
    from_features_last,
    overlap,
    share_sites,
    support_of_index,
    union,
)
from moment_calculus.values.step import Opaque, Step

__all__ = ["ALL", "Composite", "Deferred", "FunctionRegistry", "Gaussian", "Opaque"]
__all__ += ["PendingWeight", "Propagation", "Root", "RuleBook", "Spread", "Step", "Support"]
__all__ += ["Ties", "Value"]
__all__ += ["batch_shape", "broadcast_shape", "check_choice", "check_draws"]
__all__ += ["cross_covariance", "elementwise_covariance", "features_last"]
__all__ += ["from_features_last", "is_weight", "overlap", "share_sites", "support_of_index"]
__all__ += ["union"]


Value = Gaussian | Deferred
