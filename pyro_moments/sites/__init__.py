"""The sites of guide and model: their moments, and their terms of an objective."""
