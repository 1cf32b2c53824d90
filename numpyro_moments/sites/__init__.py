"""The sites of guide and model: their moments, and what each contributes to an objective."""
