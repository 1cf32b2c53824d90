"""Compare leave-one-out log predictive densities of approximations with those of chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LooComparison:
    """Expected log predictive densities (elpd) of one approximation and of chains."""

    site: str  # the observed site
    source: str  # the approximation
    elpd: float  # of the approximation
    chains: float  # elpd of the chains
    difference: float  # elpd of the approximation minus that of the chains
    error: float  # standard error of the difference over the data
    joint_shape: float  # k̂ of the approximation's weights
    bad: int  # number of data whose weights are unreliable


def compare_loo(site: str, chains: Any, others: Mapping[str, Any]) -> tuple[LooComparison, ...]:
    """Compare pointwise ``ELPDData`` of each approximation with that of the chains."""
    return tuple(
        _compare_source(site, source, chains, approximation)
        for source, approximation in others.items()
    )


def _compare_source(site: str, source: str, chains: Any, approximation: Any) -> LooComparison:
    differences = (approximation["loo_i"].values - chains["loo_i"].values).ravel()
    bad = int((approximation["pareto_k"].values > approximation["good_k"]).sum())
    return LooComparison(
        site,
        source,
        float(approximation["elpd_loo"]),
        float(chains["elpd_loo"]),
        float(differences.sum()),
        float(np.sqrt(differences.size) * differences.std()),
        float(approximation["pareto_k_joint"]),
        bad,
    )
