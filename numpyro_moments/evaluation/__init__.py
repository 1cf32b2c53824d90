"""Run a program with moments: the interpreter of its jaxpr, and the user's line of an error."""
