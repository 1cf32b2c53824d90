"""Observations with their parameters integrated out: powers, distributions, entropies."""
