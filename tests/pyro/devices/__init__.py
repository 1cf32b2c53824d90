"""Training on a second device that needs no hardware."""
