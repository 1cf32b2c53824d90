"""Leave-one-out densities of approximations beside those of chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LooComparison:
    """Expected log predictive densities of one approximation and of chains.

    Args:
        site: what is observed.
        source: the approximation.
        elpd: its expected log predictive density.
        chains: that of the chains.
        difference: of the approximation to the chains.
        error: standard error of the difference, over the data.
        joint_shape: k̂ of the approximation's weights.
        bad: how many data have weights that cannot be trusted.
    """

    site: str
    source: str
    elpd: float
    chains: float
    difference: float
    error: float
    joint_shape: float
    bad: int


def compared_loo(site: str, chains: Any, others: Mapping[str, Any]) -> tuple[LooComparison, ...]:
    """Each approximation.

    Args:
        site: what is observed.
        chains: ``ELPDData``, pointwise.
        others: likewise, by approximation.
    """
    return tuple(_compared(site, source, chains, found) for source, found in others.items())


def _compared(site: str, source: str, chains: Any, found: Any) -> LooComparison:
    each = (found["loo_i"].values - chains["loo_i"].values).ravel()
    bad = int((found["pareto_k"].values > found["good_k"]).sum())
    return LooComparison(
        site,
        source,
        float(found["elpd_loo"]),
        float(chains["elpd_loo"]),
        float(each.sum()),
        float(np.sqrt(each.size) * each.std()),
        float(found["pareto_k_joint"]),
        bad,
    )
