"""Train guides to convergence."""
