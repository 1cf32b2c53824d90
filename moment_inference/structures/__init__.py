"""Structures of Gaussian effects in NumPy: walks, maps, curves; their bases and constants."""

from moment_inference.structures.curves import (
    Interval,
    hilbert_functions,
    hilbert_squares,
    kernel_root,
    spline_functions,
)
from moment_inference.structures.maps import map_of
from moment_inference.structures.series import lags_of, walk
from moment_inference.structures.spectrum import Spectrum

__all__ = ["Interval", "Spectrum", "hilbert_functions", "hilbert_squares", "kernel_root"]
__all__ += ["lags_of", "map_of", "spline_functions", "walk"]
