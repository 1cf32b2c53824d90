"""Coordinates around one Gaussian in which its Fisher metric is the identity."""

from __future__ import annotations

from moment_inference.optimisation.local_coordinates.map import LocalMap

__all__ = ["LocalMap"]
