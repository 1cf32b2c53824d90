"""All that is particular to the line of ArviZ that this is written for: 0.23.

ArviZ is an optional dependency, and takes two seconds to import: it is loaded where it is needed.
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
    """ArviZ.

    Raises:
        ImportError: if it is not there, or another line of it; with the remedy.
    """
    install = 'pip install "pyro-moments[diagnostics]"'
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # that the next line is another one
            found = importlib.import_module("arviz")
    except ImportError as error:
        raise ImportError(f"this needs ArviZ: {install}") from error
    if not hasattr(found, "InferenceData"):
        raise ImportError(
            f"this needs the line 0.23 of ArviZ, not {found.__version__}, which has other "
            f"containers: {install}"
        )
    return found


def dataset(
    arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, list[str]],
    coords: Mapping[str, Any],
    attributes: Mapping[str, str],
    *,
    drawn: bool,
) -> Any:
    """A group: arrays with names of their axes.

    Args:
        arrays: by name; with axes of chains and draws in front if they are drawn.
        dims: names of the other axes.
        coords: along axes.
        attributes: of the group.
        drawn: whether there are axes of chains and draws.
    """
    default = ["chain", "draw"] if drawn else []
    return arviz().dict_to_dataset(
        dict(arrays), dims=dict(dims), coords=dict(coords), attrs=attributes, default_dims=default
    )


def inference_data(groups: Mapping[str, Any]) -> Any:
    """An ``InferenceData`` of groups.

    Args:
        groups: datasets by name.
    """
    return arviz().InferenceData(**groups)


def is_inference_data(found: Any) -> bool:
    """Whether something is an ``InferenceData``, which only ArviZ makes.

    Args:
        found: anything.
    """
    return type(found).__name__ == "InferenceData"


def elpd(parts: Mapping[str, Any]) -> Any:
    """An ``ELPDData``, of which ``arviz.compare`` makes a table.

    Args:
        parts: its entries.
    """
    made = importlib.import_module("arviz.stats.stats_utils").ELPDData
    return made(data=list(parts.values()), index=list(parts))


def elpd_of_chains(data: Any, site: str | None, scale: str | None) -> Any:
    """ArviZ's own leave-one-out, of draws of the posterior itself.

    Args:
        data: an ``InferenceData``.
        site: the observed one; None for the only one.
        scale: of the result; None for ArviZ's default.
    """
    return arviz().loo(data, pointwise=True, var_name=site, scale=scale)


def default_scale() -> str:
    """In which ArviZ tells expected log densities."""
    return arviz().rcParams["stats.ic_scale"]
