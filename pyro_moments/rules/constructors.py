"""Which constructor of a distribution is at work, where a rule must know."""

from __future__ import annotations

import sys

import pyro.distributions as dist

DEPTH = 8  # frames between a rule and the line that called the function


def fills_in_ordered_logistic() -> bool:
    """Whether the host's constructor of ``OrderedLogistic`` fills in its probabilities.

    Nothing in the call tells: its target is a plain tensor, as in the assignments of users, which
    are refused. The constructor itself is looked for, not its name; the host is left as it is.
    """
    frame, constructor = sys._getframe(1), dist.OrderedLogistic.__init__.__code__
    for _ in range(DEPTH):
        if frame is None or frame.f_code is constructor:
            return frame is not None
        frame = frame.f_back  # type: ignore[assignment]
    return False
