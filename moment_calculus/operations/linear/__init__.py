"""Linear maps, contractions and sums."""
