"""The normal distribution in one and two dimensions."""
