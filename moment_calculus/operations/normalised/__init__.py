"""Softmax, logsumexp and layer normalisation of live values."""
