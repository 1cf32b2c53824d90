"""Runs a program with moments: the interpreter of its jaxpr, and where in it they are."""
