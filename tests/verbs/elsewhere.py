"""What another process asks of a prediction: it imports a framework only by reading that."""

import numpy as np


def quantile(site):
    return np.asarray(site.quantile(0.3))
