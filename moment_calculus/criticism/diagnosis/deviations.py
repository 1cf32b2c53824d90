"""Check standard deviations, and recommend what is better than a guide."""

from __future__ import annotations

import numpy as np

from moment_calculus.criticism.comparison.differences import positive
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict
from moment_calculus.criticism.diagnosis.inputs import DiagnosisInputs
from moment_calculus.criticism.draws import Arrays
from moment_calculus.criticism.fitted_model import LINEAR_RESPONSE, REFUSALS
from moment_calculus.numerics.pareto import ImportanceWeights

NARROW, WIDE = 0.8, 1.25  # ratios to the right standard deviations beyond which they are wrong
Ratios = dict[str, np.ndarray]  # by quoted site, twice if its support is not the real line
MANY_COORDINATES = 50  # coordinates above which k̂ is large for almost any approximation
POINT = "use linear_response, which gives it one without a refit, or DVIGuide"
OTHERS = (
    "use a guide with covariances (AutoMultivariateNormal, TridiagonalGuide for weights), other "
    "coordinates (non-centred hierarchies), or NUTS"
)

UNCONFIRMED = (
    "use linear_response, which corrects them without a refit; that weights of so many coordinates "
    "cannot confirm it says little, compare_with_nuts does"
)


def advise(inputs: DiagnosisInputs) -> str:
    """Return advice on what is better than the guide."""
    if LINEAR_RESPONSE not in inputs.fitted_model.sources:
        return OTHERS
    weights = inputs.weights(LINEAR_RESPONSE)
    if has_wrong_scales(inputs, LINEAR_RESPONSE):
        return advise_weights(inputs.best_source)
    if isinstance(weights, ImportanceWeights) and not weights.is_reliable:
        if inputs.reliable_weights:
            return advise_weights(inputs.best_source)
        return OTHERS if inputs.size <= MANY_COORDINATES else UNCONFIRMED
    return (
        "use linear_response, which corrects them without a refit, or a guide with covariances "
        "(AutoMultivariateNormal, TridiagonalGuide for weights)"
    )


def advise_weights(source: str) -> str:
    """Return advice on how to weight draws of an approximation."""
    ways = (
        "moments, sample and to_inference_data"
        if source == LINEAR_RESPONSE
        else "to_inference_data"
    )
    return f"weigh draws of {source} by importance_weights=True, an option of {ways}"


def check_scales(inputs: DiagnosisInputs, source: str) -> Finding | None:
    """Judge whether an approximation's standard deviations are too small or too large."""
    of_guide = source == inputs.fitted_model.source
    name = "standard deviations" if of_guide else f"standard deviations of {source}"
    ratios = scale_ratios(inputs, source)
    if isinstance(ratios, str):
        why = f"nothing corrects them: {ratios}"
        return Finding(name, "not known", Verdict.UNKNOWN, why) if of_guide else None
    every = np.concatenate([np.ravel(part) for part in ratios.values()])
    least, most = float(np.nanmin(every)), float(np.nanmax(every))
    kind = "corrected" if inputs.reliable_weights is None else "weighted"
    value = f"{np.nanmedian(every):.2f} ({least:.2f}–{most:.2f}) × {kind}"
    if least == 0:
        where = next(site for site, part in ratios.items() if np.nanmin(part) == 0)
        meaning = f"{source} is a point at {where}: it has no spread there"
        return Finding(name, value, Verdict.BAD, meaning, POINT)
    words = [*_describe_wrong(ratios, narrow=True), *_describe_wrong(ratios, narrow=False)]
    if not words:
        by = f"weighted draws of {inputs.best_source}" if kind == "weighted" else LINEAR_RESPONSE
        return Finding(name, value, Verdict.GOOD, f"as those of {by}")
    remedy = advise(inputs) if of_guide else advise_weights(LINEAR_RESPONSE)
    return Finding(name, value, Verdict.BAD, "; ".join(words), remedy)


def has_wrong_scales(inputs: DiagnosisInputs, source: str, widest: float = WIDE) -> bool:
    """Return whether standard deviations of ``source`` are known to be wrong."""
    # widest: the largest ratio to the right standard deviation that is accepted.
    ratios = scale_ratios(inputs, source) if source in inputs.fitted_model.sources else ""
    return not isinstance(ratios, str) and any(
        np.nanmin(part) < NARROW or np.nanmax(part) > widest for part in ratios.values()
    )


def _describe_wrong(ratios: Ratios, narrow: bool) -> list[str]:
    """Return in words which sites are too narrow, or too wide, with the largest factor."""
    worst = {
        site: float(1 / np.nanmin(part) if narrow else np.nanmax(part))
        for site, part in ratios.items()
    }
    off = {
        site: factor for site, factor in worst.items() if factor > (1 / NARROW if narrow else WIDE)
    }
    if not off:
        return []
    where = max(off, key=lambda site: off[site])
    how, what = ("under", "narrow") if narrow else ("over", "wide")
    return [
        f"variance is {how}-estimated: of {', '.join(off)}, at {where} by a factor of "
        f"{off[where]:.3g} in the standard deviation, which is too {what}"
    ]


def scale_ratios(inputs: DiagnosisInputs, source: str) -> Ratios | str:
    """Return standard deviations over the right ones by site, or why there are none.

    Weighted draws give the right ones, else linear response: on the unconstrained space
    and on supports, since a scale whose logarithm has the right spread may itself have
    twice the right spread. Weighted draws are compared with the same draws: constant
    weights add no noise.
    """
    weights, fitted_model = inputs.reliable_weights, inputs.fitted_model
    best = fitted_model.sources[-1] if weights is None else inputs.best_source
    if weights is None and isinstance(fitted_model.response, str):
        return fitted_model.response
    if weights is None and source == best:
        return "no importance weights can be trusted"
    try:
        own, right = (fitted_model.coordinates(each).scale for each in (source, best))
        if weights is None:
            return {f"'{site}'": own[site] / right[site] for site in own}
        return _weighted(inputs, (source, own), (best, right), weights)
    except REFUSALS as error:
        return str(error)


def _weighted(
    inputs: DiagnosisInputs,
    own: tuple[str, Arrays],
    right: tuple[str, Arrays],
    weights: ImportanceWeights,
) -> Ratios:
    values = inputs.draws(right[0]).flat
    unconstrained, own_draws = inputs.fitted_model.unconstrained(values), inputs.draws(own[0]).flat
    ratios: Ratios = {}
    for site, value in values.items():
        ratios[f"'{site}'"] = (
            own[1][site] / right[1][site] * _narrowed(weights, unconstrained[site])
        )
        if value.shape != unconstrained[site].shape or not np.allclose(value, unconstrained[site]):
            spread = own_draws[site].std(0) / positive(value.std(0))
            ratios[f"'{site}' on its support"] = spread * _narrowed(weights, value)
    return ratios


def _narrowed(weights: ImportanceWeights, values: np.ndarray) -> np.ndarray:
    """Return plain over weighted standard deviations of the same draws."""
    return values.std(0) / positive(weights.standard_deviation(values))
