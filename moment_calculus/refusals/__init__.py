"""What the calculus raises and warns of."""
