"""Numerical functions for arrays of any framework."""
