"""What is optimised: one file for each objective."""
