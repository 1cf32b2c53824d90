"""What a prediction is made of, and its form as bytes."""
