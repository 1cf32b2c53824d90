"""Check fits in NumPyro: comparisons, diagnoses, conversions for ArviZ."""
