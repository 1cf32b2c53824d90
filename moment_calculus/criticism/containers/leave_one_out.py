"""Leave-one-out cross-validation by draws of an approximation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp

from moment_calculus.criticism.containers.arviz_line import (
    SCALES,
    default_scale,
    elpd,
    elpd_of_chains,
    good_shape,
    is_inference_data,
    smoothed,
)

REASON = "without_density"  # the attribute of a group "posterior" that says why there is no log q
SAMPLES = "__sample__"
FEWEST = 11  # draws of which a tail has a shape
ROWS = 4096  # data whose weights are held at once, in doubles


def as_inference_data(
    posterior: Any, model: Any, data: tuple, options: dict[str, Any], convert: Callable[..., Any]
) -> Any:
    """An ``InferenceData``, which something may be already.

    Args:
        posterior: it, or what draws are of.
        model: of the host; None if it is one.
        data: arguments of the model.
        options: of the conversion.
        convert: the host's conversion.

    Raises:
        TypeError: if there is no model.
    """
    if is_inference_data(posterior):
        return posterior
    if model is None:
        raise TypeError("loo takes an InferenceData, or a posterior, its model and the data")
    return convert(posterior, model, *data, **{"num_prior_samples": 0, **options})


def leave_one_out(data: Any, site: str | None = None, scale: str | None = None) -> Any:
    """Expected log predictive density by leaving each datum out, corrected for the approximation.

    Args:
        data: an ``InferenceData`` with the groups ``log_likelihood`` and ``sample_stats``.
        site: the observed site; by default the only one.
        scale: as of ``arviz.loo``.

    Returns:
        ArviZ's ``ELPDData``, pointwise.

    Raises:
        ValueError: if draws have no density, or it is not clear which site is meant.

    Source: Magnusson et al. 2019, Bayesian leave-one-out cross-validation for large data.
    """
    likelihood = _log_likelihood(data, site)
    log_ratios = posterior_log_ratios(data)
    if log_ratios is None:
        return elpd_of_chains(data, likelihood.name, scale)
    scale = (scale or default_scale()).lower()
    if scale not in SCALES:
        raise ValueError(f"scale is one of {', '.join(SCALES)}, not {scale!r}")
    return _of_draws(likelihood, log_ratios, scale)


def posterior_log_ratios(data: Any) -> np.ndarray | None:
    """log p − log q of every draw, up to a constant, [draws]; None for draws of the posterior.

    Args:
        data: an ``InferenceData``.

    Raises:
        ValueError: if the draws have no density, with the reason, or are too few.
    """
    if reason := data.posterior.attrs.get(REASON):
        raise ValueError(
            f"these draws have no density that importance weights could be made of: {reason}"
        )
    statistics = getattr(data, "sample_stats", {})
    if "log_q" not in statistics:
        return None
    found = (statistics["lp"] - statistics["log_q"]).values.ravel()
    if len(found) < FEWEST:
        raise ValueError(f"{len(found)} draws have no weights: leave-one-out takes {FEWEST}")
    if np.isnan(found).any() or not np.isfinite(found).any():
        raise ValueError(
            "log densities of draws are not finite: the guide draws what the model gives no density"
        )
    return found


def loo_weights(data: Any, site: str | None = None) -> Any:
    """Logarithms of the weights that draws have with each datum left out.

    Args:
        data: an ``InferenceData``.
        site: the observed site; by default the only one.

    Returns:
        ``DataArray`` of the data's axes, then ``"__sample__"``, as ``arviz.loo_pit`` and
        ``arviz.plot_loo_pit`` take it; of draws of the posterior those of ``arviz.loo``.

    Raises:
        ValueError: as :func:`leave_one_out`.
    """
    likelihood = _log_likelihood(data, site).stack({SAMPLES: ("chain", "draw")})
    log_ratios = posterior_log_ratios(data)
    ratios = 0.0 if log_ratios is None else log_ratios
    return likelihood.copy(data=smoothed(ratios - likelihood.values)[0])


def _of_draws(likelihood: Any, log_ratios: np.ndarray, scale: str) -> Any:
    stacked = likelihood.stack({SAMPLES: ("chain", "draw")})
    each, within, shapes = _pointwise(stacked.values, log_ratios)
    count, joint = len(log_ratios), smoothed(log_ratios)[1]
    is_bad, factor = bool((shapes > good_shape(count)).any()), SCALES[scale]
    if is_bad:
        _warn(good_shape(count), float(joint))
    pointwise = stacked.isel({SAMPLES: 0}, drop=True)
    return elpd(
        {
            "elpd_loo": factor * each.sum(),
            "se": abs(factor) * (each.size * each.var()) ** 0.5,
            "p_loo": within.sum() - each.sum(),
            "n_samples": count,
            "n_data_points": each.size,
            "warning": is_bad,
            "loo_i": pointwise.copy(data=factor * each).rename("loo_i"),
            "pareto_k": pointwise.copy(data=shapes).rename("pareto_shape"),
            "scale": scale,
            "good_k": good_shape(count),
            "pareto_k_joint": float(joint),
        }
    )


def _pointwise(values: np.ndarray, log_ratios: np.ndarray) -> list[np.ndarray]:
    """Of each datum log p(y | other data) and log p(y | all data), and k̂ of its weights.

    Args:
        values: log-likelihoods, [..., draws].
        log_ratios: log p − log q, [draws].
    """
    rows, shape = values.reshape(-1, values.shape[-1]), values.shape[:-1]
    whole, found = smoothed(log_ratios)[0], []
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS].astype(np.float64)
        weights, shapes = smoothed(log_ratios - part)
        means = logsumexp(weights + part, axis=-1), logsumexp(whole + part, axis=-1)
        found.append([*means, np.atleast_1d(shapes)])
    return [np.concatenate(parts).reshape(shape) for parts in zip(*found, strict=True)]


def _warn(limit: float, joint: float) -> None:
    warnings.warn(
        f"leave-one-out weights of some data have Pareto shapes above {limit:.2f} (the "
        f"approximation as a whole: {joint:.2f}): their log predictive densities are unreliable; "
        "take draws of linear_response, a guide with covariances, or NUTS",
        UserWarning,
        stacklevel=4,
    )


def _log_likelihood(data: Any, site: str | None) -> Any:
    if not hasattr(data, "log_likelihood"):
        raise ValueError(
            "there is no group 'log_likelihood': make the InferenceData by to_inference_data"
        )
    known = list(data.log_likelihood.data_vars)
    if site is None and len(known) != 1:
        listed = ", ".join(map(repr, known))
        raise ValueError(f"several sites are observed; name one, site=...: {listed}")
    if site is not None and site not in known:
        raise ValueError(f"{site!r} is no observed site; there are {', '.join(map(repr, known))}")
    return data.log_likelihood[site or known[0]]
