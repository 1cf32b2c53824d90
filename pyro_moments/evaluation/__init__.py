"""Run a program with moments: random tensors, their precision, errors' lines."""
