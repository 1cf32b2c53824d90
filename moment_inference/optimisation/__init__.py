"""Training in both front ends: data of every step, loop, minimisation, files."""
