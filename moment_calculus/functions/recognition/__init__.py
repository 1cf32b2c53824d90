"""Recognition of chains of functions by the values that they compute."""
