"""Structures of Gaussian effects in NumPy: walks, maps, curves; their bases and constants."""

from moment_inference.structures.curves import (
    KERNELS,
    Interval,
    hilbert_functions,
    hilbert_squares,
    spline_functions,
)
from moment_inference.structures.maps import map_of
from moment_inference.structures.series import lags_of, walk
from moment_inference.structures.spectrum import Spectrum

__all__ = ["KERNELS", "Interval", "Spectrum", "hilbert_functions", "hilbert_squares", "lags_of"]
__all__ += ["map_of", "spline_functions", "walk"]
