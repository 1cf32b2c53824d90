"""Linear maps, Einstein sums and reductions of live values."""
