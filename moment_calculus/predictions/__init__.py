"""Predictions of the sites of a model, and moments as users pass and receive them."""
