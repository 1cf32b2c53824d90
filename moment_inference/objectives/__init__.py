"""Building blocks of objectives: the data and their plates, power means, options, checks."""
