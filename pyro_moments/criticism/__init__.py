"""Check fits in Pyro: comparisons, diagnoses, conversions for ArviZ."""
