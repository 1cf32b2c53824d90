"""What objectives are made of: the data and their plates, means of powers, options."""
