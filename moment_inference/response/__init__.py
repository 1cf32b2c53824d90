"""Linear response: posterior covariances from the curvature of a loss at its optimum."""

from moment_inference.response.data import Data
from moment_inference.response.inverse_curvature import TOLERANCE
from moment_inference.response.problem import Problem
from moment_inference.response.response import Response

__all__ = ["TOLERANCE", "Data", "Problem", "Response"]
