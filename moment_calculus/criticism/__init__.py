"""What is asked after a fit: does it agree with other samplers, and with the data."""
