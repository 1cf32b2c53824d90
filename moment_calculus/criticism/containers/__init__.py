"""Conversion of posterior draws and model evaluations to ArviZ, and leave-one-out."""
