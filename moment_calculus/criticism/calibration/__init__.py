"""How predictions fit what was observed: coverage, scores, replicated data."""
