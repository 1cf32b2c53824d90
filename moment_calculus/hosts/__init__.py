"""What both front ends say and look up alike."""
