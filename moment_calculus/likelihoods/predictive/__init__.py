"""Predictive quantities of observations: power means, distribution functions, entropies."""
