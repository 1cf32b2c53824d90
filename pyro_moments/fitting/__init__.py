"""Training to convergence."""
