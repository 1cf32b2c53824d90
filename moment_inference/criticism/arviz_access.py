"""Everything that depends on ArviZ: containers, diagnostics, scores.

ArviZ is an optional dependency and takes two seconds to import: it is imported on first
use. Two release lines are served. Line 0.23, the last for Python 3.11, has containers of its
own, ``InferenceData``. Line 1 has xarray's ``DataTree``, and other names of scores.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import optional_package
from moment_calculus.numerics.pareto import check_ratios, smooth_weights
from moment_inference.criticism.draws import Arrays, Draws, LeaveOneOut, no_density_error
from moment_inference.objectives.calls import CONTAINERS

EXACT_DRAWS_REMEDY = (
    "Fit the model again without these data, or take a likelihood with longer tails"
)
SCALES = {"log": 1, "negative_log": -1, "deviance": -2}
NO_DENSITY = "without_density"  # attribute of the posterior: why there is no log q
LINE_1_NAMES = {"elpd_loo": "elpd", "p_loo": "p", "loo_i": "elpd_i"}
SAMPLES = "__sample__"
DIVERGING = "diverging"
PREDICTIVE = "posterior_predictive"


def arviz() -> ModuleType:
    """Import ArviZ; raise ImportError if it is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # line 0.23 announces the next one
        return optional_package("arviz", "this needs ArviZ")


def is_line_0() -> bool:
    """Return whether the installed ArviZ is of line 0.23."""
    return arviz().__version__.startswith("0.")


# Containers


def dataset(
    arrays: Arrays,
    dims: Mapping[str, list[str]],
    coords: Mapping[str, Any],
    attributes: Mapping[str, str],
    *,
    has_draws: bool,  # whether the arrays begin with the axes [chain, draw]
) -> Any:
    """Return arrays with named axes as one group of a container."""
    axes_of_draws = {
        "default_dims" if is_line_0() else "sample_dims": ["chain", "draw"] if has_draws else []
    }
    return arviz().dict_to_dataset(
        dict(arrays), dims=dict(dims), coords=dict(coords), attrs=attributes, **axes_of_draws
    )


def inference_data(groups: Mapping[str, Any]) -> Any:
    """Return the container of datasets by the name of their group."""
    if is_line_0():
        return arviz().InferenceData(**groups)
    return optional_package("xarray", "this needs xarray").DataTree.from_dict(dict(groups))


def is_inference_data(value: Any) -> bool:
    """Return whether an object is a container of either line, without an import of ArviZ."""
    return type(value).__name__ in CONTAINERS


def groups_of(data: Any) -> list[str]:
    """Return the names of the groups of a container."""
    names = data.groups() if callable(data.groups) else data.children
    return list(map(str, names))


def _dataset(data: Any, name: str) -> Any:
    """Return one group of a container as a dataset; an empty dictionary if it is missing."""
    group: Any = getattr(data, name, {})
    return group.to_dataset() if type(group).__name__ == "DataTree" else group


def chains_of(data: Any, sites: Collection[str]) -> Draws:
    """Return the posterior of a container as draws of these latent sites."""
    posterior, statistics = _dataset(data, "posterior"), _dataset(data, "sample_stats")
    if missing := [name for name in sites if name not in posterior]:
        raise ValueError(
            f"reference has no draws of {', '.join(map(repr, missing))}; its posterior has "
            f"{', '.join(map(repr, posterior.data_vars))}"
        )
    values = {name: posterior[name].transpose("chain", "draw", ...).values for name in sites}
    diverging = {DIVERGING: statistics[DIVERGING].values} if DIVERGING in statistics else {}
    return Draws(posterior.attrs.get("source", "NUTS"), values, diverging)


def group_of(data: Any, name: str) -> Any:
    """Return a group with its arrays by site; raise ValueError if it is missing."""
    if name in data:
        return _dataset(data, name)
    raise ValueError(
        f"no group {name!r} in the inference data; make one with draws of the observed sites and "
        "with the observations (arviz.from_dict, or to_inference_data)"
    )


def replications_of(name: str, group: Any) -> np.ndarray:
    """Return replicated observations of a site, [chains, draws, ...]."""
    if missing := {"chain", "draw"} - set(group[name].dims):
        raise ValueError(
            f"site {name!r}: the replications have no axis {' and '.join(sorted(missing))}, but "
            f"{', '.join(map(str, group[name].dims))}; give one chain of draws as [1, draws, ...]"
        )
    return group[name].transpose("chain", "draw", ...).values


def replicated(data: Any, sites: Sequence[str]) -> tuple[dict[str, np.ndarray], ...]:
    """Return replications [chains, draws, ...] and observations, by site."""
    predictive, observed = (_dataset(data, name) for name in (PREDICTIVE, "observed_data"))
    replications = {name: replications_of(name, predictive) for name in sites}
    return replications, {name: observed[name].values for name in sites}


# Diagnostics of chains: draws are [chains, draws, ...]


def largest_rhat(values: Arrays) -> float:
    """Return the largest R-hat of all sites; NaN if none is finite."""
    return _extreme(arviz().rhat(_data_set(values)), np.nanmax)


def smallest_effective(values: Arrays) -> float:
    """Return the smallest effective sample size of all sites; NaN if none is finite."""
    return _extreme(arviz().ess(_data_set(values)), np.nanmin)


def effective_draws(values: np.ndarray) -> float:
    """Return the effective number of draws [chains, draws] for their mean."""
    return float(arviz().ess(np.asarray(values), method="mean"))


def mean_errors(values: np.ndarray) -> np.ndarray:
    """Return standard errors of means; infinite if they cannot be estimated."""
    errors = arviz().mcse(_data_set({"value": values}), method="mean")["value"].values
    constant = values.std((0, 1)) == 0
    return np.where(constant, 0.0, np.where(np.isnan(errors), np.inf, errors))


def _data_set(values: Arrays) -> Any:
    return arviz().dict_to_dataset({name: np.asarray(part) for name, part in values.items()})


def _extreme(diagnostics: Any, most: Any) -> float:
    values = np.concatenate([part.values.ravel() for part in diagnostics.data_vars.values()])
    return float(most(values)) if np.isfinite(values).any() else float("nan")


# Leave-one-out


class Scores(NamedTuple):
    """What an ``ELPDData`` says; arrays have the shape of the data."""

    total: float  # expected log predictive density (elpd)
    error: float  # its standard error
    pointwise: np.ndarray
    shapes: np.ndarray  # k̂ of each datum
    is_bad: np.ndarray  # whether the weights of a datum cannot be trusted
    joint_shape: float  # k̂ of all weights together; zero of draws of the posterior

    @classmethod
    def of(cls, elpd: Any) -> Scores:
        """Read the result of :func:`leave_one_out`."""
        return cls(
            total=float(elpd["elpd_loo"]),
            error=float(elpd["se"]),
            pointwise=elpd["loo_i"].values,
            shapes=elpd["pareto_k"].values,
            is_bad=elpd["is_bad"].values,
            joint_shape=float(elpd["pareto_k_joint"]),
        )


def observed_sites(data: Any) -> list[str]:
    """Return the names of the sites with log-likelihoods."""
    return list(map(str, _dataset(data, "log_likelihood")))


def leave_one_out(
    data: Any, site: str | None = None, scale: str | None = None, importance_weights: bool = True
) -> Any:
    """Return ArviZ's pointwise ``ELPDData`` of leave-one-out, corrected for the approximation.

    Without ``importance_weights`` draws of an approximation count as draws of the
    posterior, for which the result is that of ``arviz.loo``, which takes longer.
    """
    likelihood = _log_likelihood(data, site)
    log_ratios = _log_ratios(data, importance_weights)
    scale = (scale or arviz().rcParams["stats.ic_scale"]).lower()
    if scale not in SCALES:
        raise ValueError(f"scale is one of {', '.join(SCALES)}, not {scale!r}")
    stacked = likelihood.stack({SAMPLES: ("chain", "draw")})
    if log_ratios is None:
        uniform = np.zeros(stacked.sizes[SAMPLES])
        result = LeaveOneOut.of(stacked.values, uniform, _relative_efficiency(data))
        result = replace(result, is_bad=result.shapes > result.largest_shape)  # as ArviZ judges
        result.warn_if_bad(EXACT_DRAWS_REMEDY)
    else:
        result = LeaveOneOut.of(stacked.values, log_ratios)
        result.warn_if_bad()
    return _elpd(result, stacked.isel({SAMPLES: 0}, drop=True), scale, importance_weights)


def _elpd(result: LeaveOneOut, like: Any, scale: str, importance_weights: bool) -> Any:
    """Return an ``ELPDData`` for ``arviz.compare``; ``like`` has the data's axes."""
    factor, each = SCALES[scale], result.left_out
    named = {  # by the names of line 0.23
        "elpd_loo": factor * each.sum(),
        "p_loo": result.within.sum() - each.sum(),
        "loo_i": like.copy(data=factor * each).rename("loo_i"),
    }
    common = {
        "se": abs(factor) * (each.size * _variance(each)) ** 0.5,
        "n_samples": result.joint.log.size,
        "n_data_points": each.size,
        "warning": result.any_bad,
        "pareto_k": like.copy(data=result.shapes).rename("pareto_shape"),
        "scale": scale,
        "good_k": result.largest_shape,
    }
    ours = {
        "is_bad": like.copy(data=result.is_bad).rename("is_bad"),
        "pareto_k_joint": float(result.joint.shape),
        "effective_joint": float(result.joint.share),
        "importance_weights": importance_weights,
    }
    return _elpd_data(named, common, ours)


def _variance(each: np.ndarray) -> float:
    """Return the variance of the data's densities; line 1 divides by one datum less."""
    return float(each.var(ddof=0 if is_line_0() else min(1, each.size - 1)))


def _elpd_data(named: dict[str, Any], common: dict[str, Any], ours: dict[str, Any]) -> Any:
    """Return ArviZ's result; it has the names of both lines, so that programs read it on both."""
    renamed = {LINE_1_NAMES[name]: value for name, value in named.items()}
    if is_line_0():
        # It prints its first three values by position: the score, its error, the parameters.
        leading = {name: {**named, **common}[name] for name in ("elpd_loo", "se", "p_loo")}
        entries = {**leading, **named, **common, **ours, **renamed}
        return arviz().ELPDData(data=list(entries.values()), index=list(entries))
    elpd = arviz().ELPDDataLOO(**renamed, **common)
    for name, value in {**named, **ours}.items():
        setattr(elpd, name, value)
    return elpd


def loo_weights(data: Any, site: str | None = None, importance_weights: bool = True) -> Any:
    """Return the log weights of the draws with each datum left out.

    Args:
        data: ArviZ's container, ``InferenceData`` or, from ArviZ 1 on, ``DataTree``.
        site: the observed site; by default the only one.
        importance_weights: as in ``loo``.

    Returns:
        ``DataArray`` with the axes of the data, then those of the draws, which
        ``arviz.loo_pit`` accepts; for draws of the posterior the same weights as
        ``arviz.loo``. In ArviZ 0.23 the axis of the draws is ``"__sample__"``. From ArviZ 1
        on there are the axes chain and draw, and ``arviz.loo_pit`` takes
        ``log_weights=weights.to_dataset()`` together with ``pareto_k``.

    Raises:
        ValueError: if draws have no density, or it is not clear which site is meant.
    """
    likelihood = _log_likelihood(data, site).stack({SAMPLES: ("chain", "draw")})
    log_ratios = _log_ratios(data, importance_weights)
    if log_ratios is None:
        weights = smooth_weights(-likelihood.values, _relative_efficiency(data))
    else:
        weights = smooth_weights(log_ratios - likelihood.values)
    result = likelihood.copy(data=weights.log)
    return result if is_line_0() else result.unstack(SAMPLES)


def _relative_efficiency(data: Any) -> float:
    """Return the mean effective number of posterior draws over their number, as ArviZ does."""
    posterior = _dataset(data, "posterior")
    if posterior.sizes["chain"] == 1:
        return 1.0
    effective = arviz().ess(posterior, method="mean")
    each = np.concatenate([effective[name].values.ravel() for name in effective.data_vars])
    return float(each.mean() / (posterior.sizes["chain"] * posterior.sizes["draw"]))


def _log_ratios(data: Any, importance_weights: bool) -> np.ndarray | None:
    """Return log p − log q [draws], zeros without correction; None of posterior draws."""
    if importance_weights:
        return posterior_log_ratios(data)
    posterior = _dataset(data, "posterior")
    count = posterior.sizes["chain"] * posterior.sizes["draw"]
    has_density = "log_q" in _dataset(data, "sample_stats")
    is_approximate = has_density or NO_DENSITY in posterior.attrs
    return check_ratios(np.zeros(count)) if is_approximate else None


def posterior_log_ratios(data: Any) -> np.ndarray | None:
    """Return log p − log q [draws] up to a constant; None of posterior draws."""
    if reason := _dataset(data, "posterior").attrs.get(NO_DENSITY):
        raise no_density_error(reason)
    statistics = _dataset(data, "sample_stats")
    if "log_q" not in statistics:
        return None
    return check_ratios((statistics["lp"] - statistics["log_q"]).values.ravel())


def _log_likelihood(data: Any, site: str | None) -> Any:
    if not hasattr(data, "log_likelihood"):
        raise ValueError(
            "there is no group 'log_likelihood', as nothing is observed: pass y, the argument that "
            "the model gives to obs=, to loo or to to_inference_data"
        )
    sites = observed_sites(data)
    listed = ", ".join(map(repr, sites))
    if site is None and len(sites) != 1:
        raise ValueError(f"several sites are observed; name one, site=...: {listed}")
    if site is not None and site not in sites:
        raise ValueError(f"{site!r} is no observed site; there are {listed}")
    return _dataset(data, "log_likelihood")[site or sites[0]]
