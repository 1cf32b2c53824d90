"""Posterior families of the guides, on arrays of any framework."""

from moment_guides.families import mean_field
from moment_guides.families.mc_dropout import no_density

__all__ = ["mean_field", "no_density"]
