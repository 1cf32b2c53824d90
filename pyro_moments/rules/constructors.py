"""Detect which constructor of a distribution calls a rule."""

from __future__ import annotations

import sys

import pyro.distributions as dist

DEPTH = 8  # frames between a rule and the line that called the function


def fills_in_ordered_logistic() -> bool:
    """Return whether the constructor of Pyro's ``OrderedLogistic`` fills in its probabilities.

    The call does not show it: the target is a plain tensor, as in a user's assignment,
    which is not supported. Frames are compared with the constructor's code object, so
    that Pyro stays unchanged.
    """
    frame, constructor = sys._getframe(1), dist.OrderedLogistic.__init__.__code__
    for _ in range(DEPTH):
        if frame is None or frame.f_code is constructor:
            return frame is not None
        frame = frame.f_back  # type: ignore[assignment]
    return False
