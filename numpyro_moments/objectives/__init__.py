"""The objectives that a fit minimises, one file for each."""
