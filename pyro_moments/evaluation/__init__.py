"""Run a program with moments: random tensors, their precision, and the user's line of an error."""
