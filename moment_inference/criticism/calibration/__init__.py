"""Check predictions against observations: coverage, scores and replicated data."""
