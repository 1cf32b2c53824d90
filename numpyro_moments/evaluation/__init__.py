"""Run a program with moments: the interpreter of its jaxpr, and errors' lines."""
