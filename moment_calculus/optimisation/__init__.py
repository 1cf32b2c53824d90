"""Training that both front ends share: the data of every step, the loop, minimisation by SciPy."""
