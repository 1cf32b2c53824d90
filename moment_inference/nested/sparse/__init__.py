"""Sparse matrices of one pattern at every grid point of the hyperparameters."""

from moment_inference.nested.sparse.matrix import Sparse
from moment_inference.nested.sparse.patterns import Entries, Pattern

__all__ = ["Entries", "Pattern", "Sparse"]
