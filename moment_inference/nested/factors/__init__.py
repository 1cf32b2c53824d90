"""Cholesky factors of sparse precisions at every grid point, and entries of their inverses."""

from moment_inference.nested.factors.base import Factors
from moment_inference.nested.factors.factorise import factorise

__all__ = ["Factors", "factorise"]
