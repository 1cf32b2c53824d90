"""The single checks of a diagnosis; each returns a finding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from moment_calculus.criticism.calibration.coverage import SIGNIFICANT
from moment_calculus.criticism.comparison.fitted_model import LINEAR_RESPONSE
from moment_calculus.criticism.containers.leave_one_out import most_influential
from moment_calculus.criticism.diagnosis.advice import MANY_COORDINATES, OTHERS, advise
from moment_calculus.criticism.diagnosis.deviations import has_wrong_scales
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict
from moment_calculus.criticism.diagnosis.inputs import DiagnosisInputs
from moment_calculus.numerics.pareto import EVEN, largest_reliable_shape
from moment_calculus.optimisation.outcome import ByDraws
from moment_calculus.response.errors import NotAnOptimum
from moment_calculus.response.response import Response

SURPRISING = 0.01  # p-value below which calibration is bad, not only doubtful
# Tail probabilities of predictive p-values that are doubtful, and bad (0.00 or 1.00 if
# rounded).
DOUBTFUL_TAIL, BAD_TAIL = 0.01, 0.005


def check_optimum(inputs: DiagnosisInputs) -> Finding:
    """Judge whether the parameters are an optimum of the objective."""
    name, response = "optimum", inputs.fitted_model.response
    if isinstance(response, Response):
        return Finding(
            name,
            f"decrement {response.decrement:.1e} nats",
            Verdict.GOOD,
            "the parameters are an optimum of the ELBO",
        )
    error = inputs.fitted_model.refusal
    if isinstance(error, NotAnOptimum):
        return Finding(
            name,
            "none",
            Verdict.BAD,
            f"not converged: {error}",
            'fit longer, or by method="newton" or "lbfgs", in double precision by float64=True',
        )
    return Finding(name, "not known", Verdict.UNKNOWN, f"no linear response: {error}")


def check_weights(inputs: DiagnosisInputs, source: str) -> Finding:
    """Judge by importance weights whether draws of ``source`` can replace posterior draws.

    k̂ is judged together with the effective share of the draws, see
    :class:`ImportanceWeights`.
    """
    name, importance_weights = f"k̂ of {source}", inputs.weights(source)
    if isinstance(importance_weights, str):
        return Finding(
            name, "none", Verdict.UNKNOWN, f"there are no importance weights: {importance_weights}"
        )
    value, limit = str(importance_weights), largest_reliable_shape(importance_weights.log.size)
    if importance_weights.share > EVEN:
        return Finding(name, value, Verdict.GOOD, "the weights are all but constant")
    if importance_weights.is_reliable and _is_narrow(inputs, source):
        return Finding(
            name,
            value,
            Verdict.BAD,
            f"k̂ is low as draws of {source}, which are too narrow, do not reach what would give "
            "their weights a tail",
            advise(inputs, has_wrong_scales(inputs, LINEAR_RESPONSE)),
        )
    if importance_weights.is_reliable:
        meaning = "importance weights correct what is left to the posterior"
        return Finding(name, value, Verdict.GOOD, meaning)
    if (size := inputs.size) > MANY_COORDINATES:
        return Finding(
            name,
            value,
            Verdict.DOUBTFUL,
            f"{value}: draws do not stand for draws of the posterior. With {size} coordinates that "
            "is the rule, also where predictions are right",
            "judge by predictions, on held-out data, or compare_with_nuts",
        )
    cause = (
        f"{value}: {float(importance_weights.shape):.2f} > {limit:.2f}"
        if importance_weights.is_heavy
        else f"{value}"
    )
    of_guide = source == inputs.fitted_model.source
    return Finding(
        name,
        value,
        Verdict.BAD,
        f"{cause}: {source} is far from the posterior in some direction; its means may still be "
        "right, its tails are not, and neither is what importance weights make of it",
        advise(inputs, has_wrong_scales(inputs, LINEAR_RESPONSE)) if of_guide else OTHERS,
    )


def _is_narrow(inputs: DiagnosisInputs, source: str) -> bool:
    """Return whether this approximation is narrower than the best one by reliable weights."""
    return source != inputs.best_source and has_wrong_scales(inputs, source, widest=np.inf)


def check_narrower_variances(inputs: DiagnosisInputs) -> Finding | None:
    """Report corrected variances below the guide's, which an exact ELBO makes impossible."""
    ratios = inputs.narrower
    if not ratios:
        return None
    listed = ", ".join(f"'{site}' ({ratio:.2f})" for site, ratio in ratios.items())
    return Finding(
        "corrected variances",
        f"down to {min(ratios.values()):.2f} × the guide's",
        Verdict.DOUBTFUL,
        f"smaller than the guide's at {listed}: scales are tied, or the ELBO is not exact there, "
        "as of networks",
        "look at moment_accuracy, or compare_with_nuts",
    )


def check_influence(inputs: DiagnosisInputs, site: str) -> Finding:
    """Judge whether single data change the posterior too much for leave-one-out."""
    name, result = f"leave one out of {site}", inputs.leave_one_out(site)
    if isinstance(result, str):
        return Finding(name, "none", Verdict.UNKNOWN, result)
    source, elpd = result
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
    if not (is_bad & inputs.is_influential(site)).any():
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


def check_calibration(name: str, calibration: Any, in_sample: bool) -> Finding:
    """Judge whether predictions are calibrated on the observations."""
    where = "in sample" if in_sample else "held out"
    check, value = f"calibration of {name}", f"{calibration.summary()} ({where})"
    meaning, chance = calibration.verdict().replace("\n", " "), calibration.p_value
    if chance >= SIGNIFICANT:
        return Finding(check, value, Verdict.GOOD, meaning)
    remedy = (
        "a likelihood with another spread (heteroscedastic, longer tails), or other inputs; "
        "moment_accuracy tells whether the propagation is at fault"
    )
    verdict = Verdict.BAD if chance < SURPRISING else Verdict.DOUBTFUL
    return Finding(check, value, verdict, meaning, remedy)


def masked_finding(check: str, count: int, size: int) -> Finding:
    """Return the finding for a check that a mask on ``count`` of ``size`` elements prevents."""
    meaning = f"{count} of {size} elements are masked: what stands in their place is no observation"
    remedy = "pass calibration and predictive_p_values what is observed alone"
    return Finding(check, "not known", Verdict.UNKNOWN, meaning, remedy)


def check_replications(inputs: DiagnosisInputs) -> list[Finding]:
    """Judge whether replicated data resemble the observations, for each observed site."""
    observed, hidden = inputs.fitted_model.observed, inputs.fitted_model.masked(held_out=False)
    findings = [
        masked_finding(f"replicated {name}", hidden[name], observed[name].size) for name in hidden
    ]
    if len(hidden) < len(observed):
        rows = inputs.p_values([name for name in observed if name not in hidden])
        each = rows.groupby(level="site")
        findings += [
            _check_replications_of(str(site), part.droplevel("site")) for site, part in each
        ]
    return findings


def _check_replications_of(site: str, rows: Any) -> Finding:
    check = f"replicated {site}"
    value = ", ".join(f"{name} p = {row['p_value']:.2f}" for name, row in rows.iterrows())
    extremity = {name: min(row["p_value"], 1 - row["p_value"]) for name, row in rows.iterrows()}
    odd = [
        f"the {name} of the data, {row['observed']:.4g}, is unlike that of replicated data, "
        f"{row['replicated_mean']:.4g} ± {row['replicated_sd']:.2g}"
        for name, row in rows.iterrows()
        if extremity[name] < DOUBTFUL_TAIL
    ]
    if not odd:
        return Finding(check, value, Verdict.GOOD, "data replicated by the model are like these")
    return Finding(
        check,
        value,
        Verdict.BAD if min(extremity.values()) < BAD_TAIL else Verdict.DOUBTFUL,
        "; ".join(odd),
        "look at az.plot_ppc(to_inference_data(...)); another likelihood or predictor",
    )


STATISTICS: Mapping[str, Callable[[np.ndarray], float]] = {
    "smallest": np.min,
    "largest": np.max,
    "standard deviation": np.std,
}


def check_loss_by_draws(estimate: ByDraws) -> Finding:
    """Judge whether draws of the guide give the same loss as propagated moments."""
    check = "loss by draws"
    if math.isnan(estimate.loss):
        return Finding(check, "not known", Verdict.UNKNOWN, estimate.note)
    value = str(estimate).removeprefix("by draws ")
    if not estimate.is_off:
        return Finding(check, value, Verdict.GOOD, "moments give the loss that draws give")
    meaning = (
        "moments on the way are approximated too coarsely: the loss is another one by draws of "
        "the same guide, and so may be the optimum"
    )
    return Finding(check, value, Verdict.BAD, meaning, f"train with {estimate.note}")
