"""What a Gaussian leaves out, to second order and in closed form, by Mehler's series."""

from moment_inference.nested.cumulant.corrections import Corrections, corrections

__all__ = ["Corrections", "corrections"]
