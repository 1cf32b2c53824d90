"""Errors of a log density of hyperparameters at the points of a reference."""

import itertools

import numpy as np
from nested import between
from nested_descriptions import described
from nested_peers import reference
from nested_references import of_hyperparameters
from scipy.special import logsumexp


def axes(known):
    """The axes of a reference's grid."""
    parts = known["hyperparameters"].values()
    ends = [(part["points"][0], part["points"][-1]) for part in parts]
    return [np.linspace(*end, count) for end, count in zip(ends, known["grid"], strict=True)]


def points(axes):
    """All points, [g, h]."""
    return np.array(list(itertools.product(*axes)))


def errors(name, case, axes, logs):
    """Total variation of hyperparameters and the error of the evidence, by log densities [g].

    Where the density fails, it counts as zero.
    """
    known = reference(name)
    failed = ~np.isfinite(logs)
    logs = np.where(failed, np.nanmax(np.where(failed, np.nan, logs)) - 50, logs)
    spacing = sum(np.log(axis[1] - axis[0]) for axis in axes)
    shaped = logs.reshape(known["grid"])
    found = of_hyperparameters(described(name, case), axes, shaped)
    return {
        "total variation": {
            site: between(found[site]["cdf"], part["cdf"])
            for site, part in known["hyperparameters"].items()
        },
        "evidence": round(float(logsumexp(logs) + spacing) - known["log evidence"], 4),
        "failed points": int(failed.sum()),
    }
