"""Random programs of the supported operations, against their Jacobians at small variances."""
