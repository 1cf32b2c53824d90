"""Minimising a deterministic loss to convergence, by SciPy: what both front ends share."""
