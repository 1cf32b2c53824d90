"""What tests take of ArviZ itself, in the release line that is installed."""

import warnings

import arviz
import numpy as np

from moment_inference.criticism.arviz_access import LINE_1_NAMES, is_line_0


def container(groups):
    """ArviZ's container of arrays by group and name."""
    return arviz.from_dict(**groups) if is_line_0() else arviz.from_dict(groups)


def arviz_loo(data, **options):
    """ArviZ's own leave-one-out by the names of line 1."""
    found = arviz.loo(data, pointwise=True, **options)
    if not is_line_0():
        return found
    return {LINE_1_NAMES.get(name, name): value for name, value in found.items()}


def arviz_weights(log_ratios):
    """ArviZ's own smoothed log weights [..., draws], and k̂ of each row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_line_0():
            return arviz.psislw(log_ratios.copy())
        from arviz_stats.base import array_stats

        return array_stats.psislw(-np.asarray(log_ratios))  # it takes log densities
