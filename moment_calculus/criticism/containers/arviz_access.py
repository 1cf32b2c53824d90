"""Access to ArviZ: everything here depends on its release line 0.23.

ArviZ is an optional dependency and takes two seconds to import: it is imported on first
use.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

SCALES = {"log": 1, "negative_log": -1, "deviance": -2}


def arviz() -> ModuleType:
    """Import ArviZ; raise ImportError with the install command if its line 0.23 is missing."""
    install = 'pip install "pyro-moments[diagnostics]"'
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next release line
            module = importlib.import_module("arviz")
    except ImportError as error:
        raise ImportError(f"this needs ArviZ: {install}") from error
    if not hasattr(module, "InferenceData"):
        raise ImportError(
            f"this needs the line 0.23 of ArviZ, not {module.__version__}, which has other "
            f"containers: {install}"
        )
    return module


def dataset(
    arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, list[str]],
    coords: Mapping[str, Any],
    attributes: Mapping[str, str],
    *,
    has_draws: bool,  # whether the arrays begin with the axes [chain, draw]
) -> Any:
    """Return arrays with named axes as one group of an ``InferenceData``."""
    default = ["chain", "draw"] if has_draws else []
    return arviz().dict_to_dataset(
        dict(arrays), dims=dict(dims), coords=dict(coords), attrs=attributes, default_dims=default
    )


def inference_data(groups: Mapping[str, Any]) -> Any:
    """Return an ``InferenceData`` of datasets by the name of their group."""
    return arviz().InferenceData(**groups)


def is_inference_data(value: Any) -> bool:
    """Return whether an object is an ``InferenceData``, without an import of ArviZ."""
    return type(value).__name__ == "InferenceData"


def elpd(entries: Mapping[str, Any]) -> Any:
    """Return an ``ELPDData`` with these entries, which ``arviz.compare`` accepts."""
    elpd_data = importlib.import_module("arviz.stats.stats_utils").ELPDData
    return elpd_data(data=list(entries.values()), index=list(entries))


def elpd_of_chains(data: Any, site: str | None, scale: str | None) -> Any:
    """Return ArviZ's own leave-one-out estimate, for draws from the posterior itself."""
    return arviz().loo(data, pointwise=True, var_name=site, scale=scale)


def default_scale() -> str:
    """Return the scale in which ArviZ reports expected log densities."""
    return arviz().rcParams["stats.ic_scale"]
