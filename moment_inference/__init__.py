"""Inference by moments in any framework: objectives, optimisation, response and criticism."""
