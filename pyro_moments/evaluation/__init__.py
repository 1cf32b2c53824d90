"""Runs a program with moments: tensors that hold them, and where in it they are."""
