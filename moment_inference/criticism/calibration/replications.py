"""Compare test statistics of the data with those of replications by posterior or prior."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from moment_inference.criticism.arviz_access import effective_draws, group_of, replications_of
from moment_inference.criticism.model_with_draws import as_inference_data
from moment_inference.display import data_frame

if TYPE_CHECKING:
    from pandas import DataFrame

MIN_DRAWS = 4  # of the shortest chain whose effective sample size ArviZ estimates
Statistic = Callable[[np.ndarray], Any]
STATISTICS: Mapping[str, Statistic] = {  # where none are given
    "smallest": np.min,
    "largest": np.max,
    "standard deviation": np.std,
}


def predictive_p_values(
    inference_data: Any,
    statistics: Mapping[str, Statistic] | None = None,
    group: str = "posterior_predictive",
) -> DataFrame:
    """Return predictive p-values of test statistics, for every observed site of a container."""
    statistics = STATISTICS if statistics is None else statistics
    if not statistics:
        raise ValueError("no statistics: pass functions of one data set by name, {'max': np.max}")
    replicated, observed = (group_of(inference_data, name) for name in (group, "observed_data"))
    sites = list(map(str, observed))
    absent = ", ".join(name for name in sites if name not in replicated)
    if absent or not sites:
        present = ", ".join(map(str, replicated)) or "nothing"
        raise ValueError(
            f"no replications of {absent or 'anything observed'} in {group!r}, which has "
            f"{present}: draw all observed sites, or leave the others out of observed_data"
        )
    pairs = {name: (replications_of(name, replicated), observed[name].values) for name in sites}
    return p_values(pairs, statistics)


def p_values_of(
    source: tuple,  # the model and its posterior; None and a container
    data: tuple,  # arguments of the model; of a container, what stands behind it
    statistics: Mapping[str, Statistic] | None,
    group: str,
    options: dict[str, Any],
    convert: Callable[..., Any],  # to a container
) -> DataFrame:
    """Return the p-values of a model and its posterior, or of a container."""
    model, posterior = source
    if model is None:
        by_place = dict(zip(("statistics", "group"), data, strict=False))
        given = {"statistics": statistics, "group": group, **by_place}
        return predictive_p_values(as_inference_data(posterior, None, (), {}, convert), **given)
    count = {} if group == "prior_predictive" else {"num_prior_samples": 0}
    container = convert(model, posterior, *data, **{**count, **options})
    return predictive_p_values(container, statistics, group)


def p_values(
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],  # [chains, draws, ...] and [...] by site
    statistics: Mapping[str, Statistic],
) -> DataFrame:
    """Return the p-values of replications, as :func:`predictive_p_values`."""
    rows = {
        (site, name): _row(f"site {site!r}, statistic {name!r}", statistic, *pair)
        for site, pair in {site: _checked(site, *pair) for site, pair in pairs.items()}.items()
        for name, statistic in statistics.items()
    }
    return data_frame([*rows.values()], [*rows], ["site", "statistic"])


def _checked(name: str, draws: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if draws.ndim == 2 and data.size == 1:  # ArviZ gives a single observation an axis
        data = data.reshape(())
    if draws.shape[2:] != data.shape:
        raise ValueError(
            f"site {name!r}: one replication has the shape {draws.shape[2:]}, the observations "
            f"{data.shape}; predict the rows that were observed"
        )
    if unknown := int(np.isnan(data).sum()):
        raise ValueError(
            f"site {name!r}: {unknown} of {data.size} observations are NaN; leave their rows out "
            "of both groups"
        )
    return draws, data


def _row(where: str, statistic: Statistic, draws: np.ndarray, data: np.ndarray) -> dict[str, float]:
    """Return the columns of the result for one statistic of one site."""
    given = _number(where, statistic, data)
    flat = draws.reshape(-1, *data.shape)
    values = np.array([_number(where, statistic, draw) for draw in flat])
    above = (0.5 * (values > given) + 0.5 * (values >= given)).reshape(draws.shape[:2])
    return {
        "observed": given,
        "replicated_mean": float(values.mean()),
        "replicated_sd": float(values.std(ddof=1)) if values.size > 1 else math.nan,
        "p_value": float(above.mean()),
        "p_value_mcse": _standard_error(above),
    }


def _standard_error(above: np.ndarray) -> float:
    """Return the error of a share; half a replication on each side keeps it positive."""
    effective = float(above.size)
    if above.shape[1] >= MIN_DRAWS and np.ptp(above) > 0:
        effective = min(effective, effective_draws(above))
    share = (above.mean() * effective + 0.5) / (effective + 1)
    return math.sqrt(share * (1 - share) / effective)


def _number(where: str, statistic: Statistic, data: np.ndarray) -> float:
    number = np.asarray(statistic(data))
    if number.size != 1 or not np.isfinite(number).all():
        raise ValueError(
            f"{where}: a test statistic is one finite number for each data set, not {number!r} of "
            f"an array of the shape {data.shape}; reduce over all its axes"
        )
    return float(number.reshape(()))
