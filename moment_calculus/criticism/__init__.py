"""Check a fit after training: against exact samplers, against draws and against the data."""
