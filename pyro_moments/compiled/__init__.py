"""A Pyro program with its gradients as one graph, captured once for every signature."""
