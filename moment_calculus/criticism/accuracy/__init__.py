"""How exact the moments of a program are, layer by layer, against draws through it."""
