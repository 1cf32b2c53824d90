"""What the constructors of distributions do with their parameters."""

from __future__ import annotations

import sys
from typing import Any

import pyro.distributions as dist
import torch

from moment_calculus.refusals.errors import UnsupportedMoments
from pyro_moments.rules.table import moment_rule

DEPTH = 8  # frames between a rule and the line that called the function


@moment_rule(torch.Tensor.__setitem__)
def setitem(input: Any, key: Any, value: Any) -> None:
    """Serve the constructor of ``OrderedLogistic``, which fills in probabilities.

    Its rule starts from the predictor instead; the probabilities become NaN, so that nothing else
    can use them.
    """
    if not _fills_in_ordered_logistic():
        raise UnsupportedMoments(
            "a part of a tensor cannot become random in place",
            sites=getattr(value, "sites", getattr(input, "sites", ())),
            remedy="build the tensor with torch.cat",
        )
    input[key] = torch.nan


def _fills_in_ordered_logistic() -> bool:
    """Whether the host's constructor is at work.

    Nothing in the call tells: the target is a plain tensor, as in the assignments of users, which
    are refused. The constructor itself is looked for, not its name; the host is left as it is.
    """
    frame, constructor = sys._getframe(1), dist.OrderedLogistic.__init__.__code__
    for _ in range(DEPTH):
        if frame is None or frame.f_code is constructor:
            return frame is not None
        frame = frame.f_back  # type: ignore[assignment]
    return False
