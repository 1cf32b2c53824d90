"""Ways in which randomness flows through a model: by moments, by draws, by means."""
