"""Functions of the normal distribution in one and two dimensions."""
