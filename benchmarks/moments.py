"""Moments of programs beside those of draws, for several benchmarks."""

import numpy as np


def of_draws(parts):
    """Mean and standard deviation of what comes in parts [draws, ...]; the first part's mean is
    subtracted, against cancellation."""
    count, total, squares, centre = 0, 0.0, 0.0, None
    for part in parts:
        part = np.asarray(part, np.float64)
        centre = part.mean(0) if centre is None else centre
        count, total = count + len(part), total + (part - centre).sum(0)
        squares = squares + ((part - centre) ** 2).sum(0)
    mean = total / count
    return centre + mean, np.sqrt(squares / count - mean**2)


def ratio(found, drawn):
    """Geometric mean of the standard deviations of moments over the drawn ones."""
    return float(np.exp(np.mean(np.log(np.asarray(found.variance) ** 0.5 / drawn))))


def random(host, means, deviations):
    """Independent Gaussians: arrays of means, and a standard deviation for each of them."""
    moments = host.package.Moments
    return [
        moments(host.array(mean), variance=host.array(0 * mean + deviation**2))
        for mean, deviation in zip(means, deviations, strict=True)
    ]
