"""Rules of primitives that contain programs: calls, loops, branches."""

from numpyro_moments.rules.programs import (
    calls,
    carried,
    control_flow,
    loop,
    loop_plan,
    recognised_calls,
)

__all__ = ["calls", "carried", "control_flow", "loop", "loop_plan", "recognised_calls"]
