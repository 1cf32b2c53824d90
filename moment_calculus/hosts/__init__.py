"""Share code between the Pyro and NumPyro front ends: messages, storage, predictions."""
