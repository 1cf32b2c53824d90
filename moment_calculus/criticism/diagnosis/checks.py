"""The single checks of a diagnosis; each returns a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from moment_calculus.criticism.calibration.coverage import SIGNIFICANT
from moment_calculus.criticism.comparison.subject import RESPONSE
from moment_calculus.criticism.containers.leave_one_out import most_influential
from moment_calculus.criticism.diagnosis.advice import MANY, OTHERS, better
from moment_calculus.criticism.diagnosis.deviations import is_off
from moment_calculus.criticism.diagnosis.evidence import Evidence
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict
from moment_calculus.numerics.pareto import EVEN, good_shape
from moment_calculus.response.errors import NotAnOptimum
from moment_calculus.response.response import Response

SURPRISING = 0.01  # p-value below which calibration is bad, not only doubtful
# Tail probabilities of predictive p-values that are doubtful, and bad (0.00 or 1.00 if rounded).
TAIL, EXTREME = 0.01, 0.005


def optimum(evidence: Evidence) -> Finding:
    """Judge whether the parameters are an optimum of the objective."""
    name, found = "optimum", evidence.subject.response
    if isinstance(found, Response):
        return Finding(
            name,
            f"decrement {found.decrement:.1e} nats",
            Verdict.GOOD,
            "the parameters are an optimum of the ELBO",
        )
    refusal = evidence.subject.refusal
    if isinstance(refusal, NotAnOptimum):
        return Finding(
            name,
            "none",
            Verdict.BAD,
            f"not converged: {refusal}",
            'fit longer, or by method="newton" or "lbfgs", in double precision by float64=True',
        )
    return Finding(name, "not known", Verdict.UNKNOWN, f"no linear response: {refusal}")


def weights(evidence: Evidence, source: str) -> Finding:
    """Judge by importance weights whether draws of ``source`` can replace posterior draws.

    k̂ is judged together with the effective share of the draws, see :class:`Weights`.
    """
    name, found = f"k̂ of {source}", evidence.weights(source)
    if isinstance(found, str):
        return Finding(name, "none", Verdict.UNKNOWN, f"there are no importance weights: {found}")
    value, limit = str(found), good_shape(found.log.size)
    if found.share > EVEN:
        return Finding(name, value, Verdict.GOOD, "the weights are all but constant")
    if found.is_reliable and _is_narrow(evidence, source):
        return Finding(
            name,
            value,
            Verdict.BAD,
            f"k̂ is low as draws of {source}, which are too narrow, do not reach what would give "
            "their weights a tail",
            better(evidence, is_off(evidence, RESPONSE)),
        )
    if found.is_reliable:
        meaning = "importance weights correct what is left to the posterior"
        return Finding(name, value, Verdict.GOOD, meaning)
    if (size := evidence.size) > MANY:
        return Finding(
            name,
            value,
            Verdict.DOUBTFUL,
            f"{value}: draws do not stand for draws of the posterior. With {size} coordinates that "
            "is the rule, also where predictions are right",
            "judge by predictions, on held-out data, or compare_with_nuts",
        )
    cause = f"{value}: {float(found.shape):.2f} > {limit:.2f}" if found.is_heavy else f"{value}"
    of_guide = source == evidence.subject.source
    return Finding(
        name,
        value,
        Verdict.BAD,
        f"{cause}: {source} is far from the posterior in some direction; its means may still be "
        "right, its tails are not, and neither is what importance weights make of it",
        better(evidence, is_off(evidence, RESPONSE)) if of_guide else OTHERS,
    )


def _is_narrow(evidence: Evidence, source: str) -> bool:
    """Return whether this approximation is narrower than the best one by reliable weights."""
    return source != evidence.best and is_off(evidence, source, widest=np.inf)


def narrower(evidence: Evidence) -> Finding | None:
    """Report corrected variances below the guide's, which an exact ELBO makes impossible."""
    found = evidence.narrower
    if not found:
        return None
    listed = ", ".join(f"'{site}' ({ratio:.2f})" for site, ratio in found.items())
    return Finding(
        "corrected variances",
        f"down to {min(found.values()):.2f} × the guide's",
        Verdict.DOUBTFUL,
        f"smaller than the guide's at {listed}: scales are tied, or the ELBO is not exact there, "
        "as of networks",
        "look at moment_accuracy, or compare_with_nuts",
    )


def influential(evidence: Evidence, site: str) -> Finding:
    """Judge whether single data change the posterior too much for leave-one-out."""
    name, found = f"leave one out of {site}", evidence.leave_one_out(site)
    if isinstance(found, str):
        return Finding(name, "none", Verdict.UNKNOWN, found)
    source, elpd = found
    shapes, is_bad = elpd["pareto_k"].values, elpd["is_bad"].values
    value = f"{elpd['elpd_loo']:.1f} ± {elpd['se']:.1f}, {is_bad.sum()} of {shapes.size} k̂ bad"
    first = f"the most influential datum is {most_influential(shapes)}, k̂ {shapes.max():.2f}"
    if not elpd["importance_weights"]:
        return Finding(
            name,
            value,
            Verdict.DOUBTFUL,
            f"no weights of all latent sites together can be trusted: draws of {source} count as "
            f"those of the posterior here, as by loo(..., importance_weights=False); {first}",
            "compare_with_nuts",
        )
    if not is_bad.any():
        return Finding(name, value, Verdict.GOOD, f"by weighted draws of {source}; {first}")
    if not (is_bad & evidence.is_influential(site)).any():
        return Finding(
            name,
            value,
            Verdict.DOUBTFUL,
            f"the weights of {source} as a whole, with k̂ {elpd['pareto_k_joint']:.2f}, leave no "
            f"room for those of single data; {first}",
            "more draws, num_samples=...; or compare_with_nuts",
        )
    return Finding(
        name,
        value,
        Verdict.DOUBTFUL,
        f"by weighted draws of {source}: single data move the posterior by more than importance "
        f"weights can follow, the most at {most_influential(shapes, 3)}; {first}",
        "look at these data; a likelihood with longer tails, or a refit without them",
    )


def calibrated(name: str, found: Any, in_sample: bool) -> Finding:
    """Judge whether predictions are calibrated on the observations."""
    where = "in sample" if in_sample else "held out"
    check, value = f"calibration of {name}", f"{found.summary()} ({where})"
    meaning, chance = found.verdict().replace("\n", " "), found.p_value
    if chance >= SIGNIFICANT:
        return Finding(check, value, Verdict.GOOD, meaning)
    remedy = (
        "a likelihood with another spread (heteroscedastic, longer tails), or other inputs; "
        "moment_accuracy tells whether the propagation is at fault"
    )
    verdict = Verdict.BAD if chance < SURPRISING else Verdict.DOUBTFUL
    return Finding(check, value, verdict, meaning, remedy)


def masked(check: str, count: int, size: int) -> Finding:
    """Return the finding for a check that a mask on ``count`` of ``size`` elements prevents."""
    meaning = f"{count} of {size} elements are masked: what stands in their place is no observation"
    remedy = "pass calibration and predictive_p_values what is observed alone"
    return Finding(check, "not known", Verdict.UNKNOWN, meaning, remedy)


def replicated(evidence: Evidence) -> list[Finding]:
    """Judge whether replicated data resemble the observations, for each observed site."""
    observed, hidden = evidence.subject.observed, evidence.subject.masked(held_out=False)
    found = [masked(f"replicated {name}", hidden[name], observed[name].size) for name in hidden]
    if len(hidden) < len(observed):
        rows = evidence.p_values([name for name in observed if name not in hidden])
        each = rows.groupby(level="site")
        found += [_replicated(str(site), part.droplevel("site")) for site, part in each]
    return found


def _replicated(site: str, rows: Any) -> Finding:
    check = f"replicated {site}"
    value = ", ".join(f"{name} p = {row['p_value']:.2f}" for name, row in rows.iterrows())
    extremity = {name: min(row["p_value"], 1 - row["p_value"]) for name, row in rows.iterrows()}
    odd = [
        f"the {name} of the data, {row['observed']:.4g}, is unlike that of replicated data, "
        f"{row['replicated_mean']:.4g} ± {row['replicated_sd']:.2g}"
        for name, row in rows.iterrows()
        if extremity[name] < TAIL
    ]
    if not odd:
        return Finding(check, value, Verdict.GOOD, "data replicated by the model are like these")
    return Finding(
        check,
        value,
        Verdict.BAD if min(extremity.values()) < EXTREME else Verdict.DOUBTFUL,
        "; ".join(odd),
        "look at az.plot_ppc(to_inference_data(...)); another likelihood or predictor",
    )


STATISTICS: Mapping[str, Callable[[np.ndarray], float]] = {
    "smallest": np.min,
    "largest": np.max,
    "standard deviation": np.std,
}
