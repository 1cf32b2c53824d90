"""Check a fit after training against exact samplers, draws and the data."""
