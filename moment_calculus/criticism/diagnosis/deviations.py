"""Check standard deviations against those of reliable weighted draws, or of linear response."""

from __future__ import annotations

import numpy as np

from moment_calculus.criticism.comparison.subject import REFUSALS, RESPONSE
from moment_calculus.criticism.containers.draws import Arrays
from moment_calculus.criticism.diagnosis.advice import POINT, better, weighted
from moment_calculus.criticism.diagnosis.evidence import Evidence
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict
from moment_calculus.numerics.pareto import Weights

NARROW, WIDE = 0.8, 1.25  # ratios to the right standard deviations beyond which they are wrong

Ratios = dict[str, np.ndarray]  # by quoted site, twice if its support is not the real line


def scales(evidence: Evidence, source: str) -> Finding | None:
    """Judge whether an approximation's standard deviations are too small or too large."""
    of_guide = source == evidence.subject.source
    name = "standard deviations" if of_guide else f"standard deviations of {source}"
    found = ratios(evidence, source)
    if isinstance(found, str):
        why = f"nothing corrects them: {found}"
        return Finding(name, "not known", Verdict.UNKNOWN, why) if of_guide else None
    every = np.concatenate([np.ravel(part) for part in found.values()])
    least, most = float(np.nanmin(every)), float(np.nanmax(every))
    kind = "corrected" if evidence.trusted is None else "weighted"
    value = f"{np.nanmedian(every):.2f} ({least:.2f}–{most:.2f}) × {kind}"
    if least == 0:
        where = next(site for site, part in found.items() if np.nanmin(part) == 0)
        meaning = f"{source} is a point at {where}: it has no spread there"
        return Finding(name, value, Verdict.BAD, meaning, POINT)
    words = [*_off(found, narrow=True), *_off(found, narrow=False)]
    if not words:
        by = f"weighted draws of {evidence.best}" if kind == "weighted" else RESPONSE
        return Finding(name, value, Verdict.GOOD, f"as those of {by}")
    remedy = better(evidence, is_off(evidence, RESPONSE)) if of_guide else weighted(RESPONSE)
    return Finding(name, value, Verdict.BAD, "; ".join(words), remedy)


def is_off(evidence: Evidence, source: str, widest: float = WIDE) -> bool:
    """Return whether standard deviations of ``source`` are known to be wrong."""
    # widest: the largest ratio to the right standard deviation that is accepted.
    found = ratios(evidence, source) if source in evidence.subject.sources else ""
    return not isinstance(found, str) and any(
        np.nanmin(part) < NARROW or np.nanmax(part) > widest for part in found.values()
    )


def _off(found: Ratios, narrow: bool) -> list[str]:
    """Return in words which sites are too narrow, or too wide, with the largest factor."""
    worst = {
        site: float(1 / np.nanmin(part) if narrow else np.nanmax(part))
        for site, part in found.items()
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


def ratios(evidence: Evidence, source: str) -> Ratios | str:
    """Return standard deviations over the right ones by site, or why there are none.

    Weighted draws give the right ones, else linear response: on the unconstrained space and on
    supports, since a scale whose logarithm has the right spread may itself have twice the right
    spread. Weighted draws are compared with the same draws: constant weights add no noise.
    """
    weights, subject = evidence.trusted, evidence.subject
    best = subject.sources[-1] if weights is None else evidence.best
    if weights is None and isinstance(subject.response, str):
        return subject.response
    if weights is None and source == best:
        return "no importance weights can be trusted"
    try:
        ours, right = (subject.coordinates(each).scale for each in (source, best))
        if weights is None:
            return {f"'{site}'": ours[site] / right[site] for site in ours}
        return _weighted(evidence, (source, ours), (best, right), weights)
    except REFUSALS as refusal:
        return str(refusal)


def _weighted(
    evidence: Evidence,
    ours: tuple[str, Arrays],
    right: tuple[str, Arrays],
    weights: Weights,
) -> Ratios:
    values = evidence.draws(right[0]).flat
    free, mine = evidence.subject.unconstrained(values), evidence.draws(ours[0]).flat
    found: Ratios = {}
    for site, value in values.items():
        found[f"'{site}'"] = ours[1][site] / right[1][site] * _narrowed(weights, free[site])
        if value.shape != free[site].shape or not np.allclose(value, free[site]):
            spread = mine[site].std(0) / _safe(value.std(0))
            found[f"'{site}' on its support"] = spread * _narrowed(weights, value)
    return found


def _narrowed(weights: Weights, values: np.ndarray) -> np.ndarray:
    """Return plain over weighted standard deviations of the same draws."""
    return values.std(0) / _safe(weights.standard_deviation(values))


def _safe(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 0, scale, np.nan)
