"""Rules for what the constructors of distributions do with their parameters."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.errors import UnsupportedMoments
from pyro_moments.rules.constructors import fills_in_ordered_logistic
from pyro_moments.rules.table import moment_rule


@moment_rule(torch.Tensor.__setitem__)
def setitem(input: Any, key: Any, value: Any) -> None:
    """Serve the constructor of ``OrderedLogistic``, which fills in probabilities."""
    if not fills_in_ordered_logistic():
        raise UnsupportedMoments(
            "a part of a tensor cannot become random in place",
            sites=getattr(value, "sites", getattr(input, "sites", ())),
            remedy="build the tensor with torch.cat",
        )
    # The likelihood's rule starts from the predictor; NaN keeps others from using these.
    input[key] = torch.nan
