"""Compare the propagated moments of a program, layer by layer, with draws through it."""
