"""Marginal posteriors of sites, on their supports."""

from moment_inference.nested.marginals.site import (
    IDENTITY,
    Marginal,
    MixtureMarginal,
    TableMarginal,
    Transform,
)
from moment_inference.nested.marginals.stacked import StackedMarginal

__all__ = ["IDENTITY", "Marginal", "MixtureMarginal", "StackedMarginal", "TableMarginal"]
__all__ += ["Transform"]
