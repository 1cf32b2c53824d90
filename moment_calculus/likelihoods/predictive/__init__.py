"""Observations with their parameters integrated out: distribution functions, means of powers."""
