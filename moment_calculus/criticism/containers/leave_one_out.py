"""Pareto-smoothed leave-one-out cross-validation with draws of an approximation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp

from moment_calculus.criticism.containers.arviz_access import (
    SCALES,
    default_scale,
    elpd,
    elpd_of_chains,
    is_inference_data,
)
from moment_calculus.numerics.pareto import (
    ImportanceWeights,
    check_ratios,
    largest_reliable_shape,
    smooth_weights,
)

NO_DENSITY_ATTRIBUTE = (
    "without_density"  # attribute of the group "posterior": why there is no log q
)
SAMPLES = "__sample__"
ROWS = 4096  # data whose weights are in memory at once, in double precision


def as_inference_data(
    posterior: Any, model: Any, data: tuple, options: dict[str, Any], convert: Callable[..., Any]
) -> Any:
    """Return ``posterior`` if it is an ``InferenceData``, otherwise convert it to one."""
    if is_inference_data(posterior):
        return posterior
    if model is None:
        raise TypeError("loo takes an InferenceData, or a posterior, its model and the data")
    return convert(posterior, model, *data, **{"num_prior_samples": 0, **options})


def leave_one_out(
    data: Any, site: str | None = None, scale: str | None = None, importance_weights: bool = True
) -> Any:
    """Return ArviZ's pointwise ``ELPDData`` of leave-one-out, corrected for the approximation.

    Without ``importance_weights`` draws of an approximation count as draws of the
    posterior.

    Source: Magnusson et al. 2019, Bayesian leave-one-out cross-validation for large data.
    """
    likelihood = _log_likelihood(data, site)
    log_ratios = _log_ratios(data, importance_weights)
    if log_ratios is None:
        return elpd_of_chains(data, likelihood.name, scale)
    scale = (scale or default_scale()).lower()
    if scale not in SCALES:
        raise ValueError(f"scale is one of {', '.join(SCALES)}, not {scale!r}")
    result = _of_draws(likelihood, log_ratios, scale)
    result["importance_weights"] = importance_weights
    return result


def _log_ratios(data: Any, importance_weights: bool) -> np.ndarray | None:
    """Return log p − log q [draws], zeros without correction, or None for posterior draws."""
    if importance_weights:
        return posterior_log_ratios(data)
    is_approximate = NO_DENSITY_ATTRIBUTE in data.posterior.attrs or "log_q" in getattr(
        data, "sample_stats", {}
    )
    count = data.posterior.sizes["chain"] * data.posterior.sizes["draw"]
    return check_ratios(np.zeros(count)) if is_approximate else None


def no_density_error(reason: str) -> ValueError:
    """Return the error for draws that have no density, hence no importance weights."""
    return ValueError(
        f"these draws have no density that importance weights could be made of: {reason}"
    )


def posterior_log_ratios(data: Any) -> np.ndarray | None:
    """Return log p − log q of every draw up to a constant, [draws]; None for posterior draws."""
    if reason := data.posterior.attrs.get(NO_DENSITY_ATTRIBUTE):
        raise no_density_error(reason)
    statistics = getattr(data, "sample_stats", {})
    if "log_q" not in statistics:
        return None
    return check_ratios((statistics["lp"] - statistics["log_q"]).values.ravel())


def loo_weights(data: Any, site: str | None = None, importance_weights: bool = True) -> Any:
    """Return the log weights of the draws with each datum left out.

    Args:
        data: an ``InferenceData``.
        site: the observed site; by default the only one.
        importance_weights: as in ``loo``.

    Returns:
        ``DataArray`` with the axes of the data, then ``"__sample__"``, which
        ``arviz.loo_pit`` and ``arviz.plot_loo_pit`` accept; for draws of the posterior
        the same weights as ``arviz.loo``.

    Raises:
        ValueError: if draws have no density, or it is not clear which site is meant.
    """
    likelihood = _log_likelihood(data, site).stack({SAMPLES: ("chain", "draw")})
    log_ratios = _log_ratios(data, importance_weights)
    ratios = 0.0 if log_ratios is None else log_ratios
    return likelihood.copy(data=smooth_weights(ratios - likelihood.values).log)


def _of_draws(likelihood: Any, log_ratios: np.ndarray, scale: str) -> Any:
    stacked = likelihood.stack({SAMPLES: ("chain", "draw")})
    joint = smooth_weights(log_ratios)
    each, within, shapes, is_heavy = _pointwise(stacked.values, log_ratios, joint)
    factor, pointwise = SCALES[scale], stacked.isel({SAMPLES: 0}, drop=True)
    is_bad = bool(is_heavy.any() or not joint.is_reliable)
    if is_bad:
        _warn(joint, shapes, is_heavy)
    return elpd(
        {
            "elpd_loo": factor * each.sum(),
            "se": abs(factor) * (each.size * each.var()) ** 0.5,
            "p_loo": within.sum() - each.sum(),
            "n_samples": len(log_ratios),
            "n_data_points": each.size,
            "warning": is_bad,
            "loo_i": pointwise.copy(data=factor * each).rename("loo_i"),
            "pareto_k": pointwise.copy(data=shapes).rename("pareto_shape"),
            "is_bad": pointwise.copy(data=is_heavy).rename("is_bad"),
            "scale": scale,
            "good_k": largest_reliable_shape(len(log_ratios)),
            "pareto_k_joint": float(joint.shape),
            "effective_joint": float(joint.share),
        }
    )


def _pointwise(
    values: np.ndarray, log_ratios: np.ndarray, joint: ImportanceWeights
) -> list[np.ndarray]:
    """Return log p(y | other data), log p(y | all data), k̂ and ``is_heavy`` of each datum."""
    # values: log-likelihoods [..., draws]; joint: smoothed weights of log_ratios [draws].
    rows, shape, columns = values.reshape(-1, values.shape[-1]), values.shape[:-1], []
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS].astype(np.float64)
        left_out = smooth_weights(log_ratios - part)
        means = logsumexp(left_out.log + part, axis=-1), logsumexp(joint.log + part, axis=-1)
        columns.append([*means, left_out.shape, left_out.is_heavy])
    return [np.concatenate(parts).reshape(shape) for parts in zip(*columns, strict=True)]


def most_influential(shapes: np.ndarray, count: int = 1) -> str:
    """Return the indices of the ``count`` data with the largest k̂, as text."""
    order = np.argsort(-shapes.ravel())[:count]
    return ", ".join(str(tuple(map(int, np.unravel_index(at, shapes.shape)))) for at in order)


def _warn(joint: ImportanceWeights, shapes: np.ndarray, is_heavy: np.ndarray) -> None:
    cause = (
        f"leave-one-out weights of {is_heavy.sum()} of {is_heavy.size} data have Pareto shapes "
        f"that are too large, those of {most_influential(shapes, 3)} the largest (k̂ up to "
        f"{shapes.max():.2f}): their log predictive densities are unreliable. Take draws of "
        "linear_response, a guide with covariances, or NUTS"
        if joint.is_reliable
        else f"the importance weights of the approximation as a whole cannot be trusted (k̂ "
        f"{joint}), which says nothing of single data: with many latent sites it is the rule, "
        "also where the marginal of each is right. loo(..., importance_weights=False) takes the "
        "draws as those of the posterior, without a correction; or take NUTS"
    )
    warnings.warn(cause, UserWarning, stacklevel=4)


def _log_likelihood(data: Any, site: str | None) -> Any:
    if not hasattr(data, "log_likelihood"):
        raise ValueError(
            "there is no group 'log_likelihood': make the InferenceData by to_inference_data"
        )
    sites = list(data.log_likelihood.data_vars)
    if site is None and len(sites) != 1:
        listed = ", ".join(map(repr, sites))
        raise ValueError(f"several sites are observed; name one, site=...: {listed}")
    if site is not None and site not in sites:
        raise ValueError(f"{site!r} is no observed site; there are {', '.join(map(repr, sites))}")
    return data.log_likelihood[site or sites[0]]
