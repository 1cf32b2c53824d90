"""Rules of primitives that contain programs: calls, loops, branches."""

from numpyro_moments.rules.programs import calls, control_flow  # noqa: F401  (register)
