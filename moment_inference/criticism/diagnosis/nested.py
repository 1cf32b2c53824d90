"""Judge a posterior by nested inference: its grid, its correction, its Gaussian."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moment_calculus.numerics.pareto import largest_reliable_shape
from moment_inference.criticism.diagnosis.findings import Finding, Verdict
from moment_inference.criticism.fitted_nested import FittedNested
from moment_inference.nested.posterior import NestedPosterior

CENTRE = "k̂ of the Gaussian at the centre"
REMEDY = "compare_with_nuts"


def check_nested(fitted: FittedNested) -> Iterator[Finding]:
    """Yield findings on the hyperparameters' grid, and on the field given the best of them."""
    posterior = fitted.nested
    evidence = f"{posterior.log_evidence:.3f} ± {posterior.log_evidence_error:.3f}"
    meaning = "log p(y) in nats, and its predicted error"
    yield Finding("evidence", evidence, Verdict.GOOD, meaning)
    correction = f"{posterior.correction:+.3f} ± {posterior.correction_error:.3f} nats"
    good = "what the ELBO of the field lacks is known well enough"
    yield _unless_in_doubt(posterior, ["correction"], "correction", correction, good)
    names = ", ".join(posterior.hyperparameters) or "one point"
    good = "the hyperparameters have one mode, and their mass is on the grid"
    yield _unless_in_doubt(posterior, ["modes", "edge"], "grid", names, good)
    if posterior.field:
        yield check_centre(fitted)


def _unless_in_doubt(
    posterior: NestedPosterior, parts: Sequence[str], check: str, value: str, good: str
) -> Finding:
    doubts = [posterior.doubts[part] for part in parts if part in posterior.doubts]
    if not doubts:
        return Finding(check, value, Verdict.GOOD, good)
    return Finding(check, value, Verdict.DOUBTFUL, "; ".join(doubts), REMEDY)


def check_centre(fitted: FittedNested) -> Finding:
    """Judge the Gaussian of the field, given the best hyperparameters, by importance weights."""
    weights = fitted.weights_at_centre()
    if isinstance(weights, str):
        meaning = f"there are no importance weights: {weights}"
        return Finding(CENTRE, "none", Verdict.UNKNOWN, meaning)
    if weights.is_reliable:
        meaning = "given the best hyperparameters, the field is nearly this Gaussian"
        return Finding(CENTRE, str(weights), Verdict.GOOD, meaning)
    limit = largest_reliable_shape(weights.log.size)
    cause = f": {float(weights.shape):.2f} > {limit:.2f}" if weights.is_heavy else ""
    meaning = (
        f"given the best hyperparameters, the field is far from this Gaussian in some direction"
        f"{cause}; of many coordinates together that is the rule, also where each marginal, which "
        "is corrected, is right"
    )
    return Finding(CENTRE, str(weights), Verdict.DOUBTFUL, meaning, REMEDY)
