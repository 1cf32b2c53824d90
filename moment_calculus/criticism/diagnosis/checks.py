"""Single checks of a fit, each of which finds one thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from moment_calculus.criticism.calibration.coverage import SIGNIFICANT
from moment_calculus.criticism.diagnosis.evidence import Evidence
from moment_calculus.criticism.diagnosis.findings import Finding, Verdict
from moment_calculus.response.errors import NotAnOptimum
from moment_calculus.response.response import Response

LIMIT = 0.7  # of k̂, above which importance weights have no use
EVEN = 0.9  # share of effective draws, with which weights have no tail that matters
NARROW = 0.8  # of standard deviations to corrected ones, that are called too small
MANY = 50  # coordinates, of which k̂ is large for almost any approximation
OWN = 0.15  # of k̂, by which that of a datum is more than that of the approximation
SURPRISING = 0.01  # p-value below which predictions are not calibrated
TAIL = 0.01  # of predictive p-values

STRUCTURED = (
    "use linear_response, which corrects them without a refit, or a guide with covariances "
    "(AutoMultivariateNormal, TridiagonalGuide for weights)"
)
POINT = "use linear_response, which gives it one without a refit, or DVIGuide"


def optimum(evidence: Evidence) -> Finding:
    """Whether the parameters are an optimum of the objective."""
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
    """Whether draws of an approximation can stand for draws of the posterior."""
    name = f"k̂ of {source}"
    shape = evidence.shape(source)
    if isinstance(shape, str):
        return Finding(name, "none", Verdict.UNKNOWN, f"there are no importance weights: {shape}")
    value = f"{shape:.2f}"
    if shape <= LIMIT:
        return Finding(
            name, value, Verdict.GOOD, "importance weights correct what is left to the posterior"
        )
    if (share := evidence.effective(source)) > EVEN:
        meaning = "the weights have a tail, but they are all but constant: it has no weight"
        return Finding(name, f"{value}, {share:.0%} effective", Verdict.GOOD, meaning)
    size = evidence.size
    if size > MANY:
        return Finding(
            name,
            value,
            Verdict.DOUBTFUL,
            f"{value} > {LIMIT}: draws do not stand for draws of the posterior. With {size} "
            "coordinates that is the rule, also where predictions are right",
            "judge by predictions, on held-out data, or compare_with_nuts",
        )
    others = (
        "use a guide with covariances, other coordinates (non-centred hierarchies), or NUTS"
        if source != evidence.subject.source
        else STRUCTURED
    )
    return Finding(
        name,
        value,
        Verdict.BAD,
        f"{value} > {LIMIT}: {source} is far from the posterior in some direction; its means may "
        "still be right, its tails are not, and neither is what importance weights make of it",
        others,
    )


def scales(evidence: Evidence) -> Finding:
    """Whether the guide's standard deviations are too small."""
    name, ratios = "standard deviations", evidence.scale_ratios
    if isinstance(ratios, str):
        return Finding(name, "not known", Verdict.UNKNOWN, f"nothing corrects them: {ratios}")
    worst = min(ratios, key=lambda site: float(np.nanmin(ratios[site])))
    least = float(np.nanmin(ratios[worst]))
    every = np.concatenate([np.ravel(part) for part in ratios.values()])
    value = f"{np.nanmedian(every):.2f} ({least:.2f}–{np.nanmax(every):.2f}) × corrected"
    if least >= NARROW:
        return Finding(name, value, Verdict.GOOD, "as those of linear response")
    if least == 0:
        meaning = f"{evidence.subject.source} is a point at '{worst}': it has no spread there"
        return Finding(name, value, Verdict.BAD, meaning, POINT)
    low = [f"'{site}'" for site, part in ratios.items() if np.nanmin(part) < NARROW]
    return Finding(
        name,
        value,
        Verdict.BAD,
        f"variance is under-estimated: of {', '.join(low)}, at '{worst}' by a factor of "
        f"{1 / least:.3g} in the standard deviation",
        STRUCTURED,
    )


def narrower(evidence: Evidence) -> Finding | None:
    """Whether corrected variances are smaller than the guide's, which an exact ELBO forbids."""
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
    """Whether leaving single data out changes the posterior by too much."""
    name, found = f"leave one out of {site}", evidence.leave_one_out(site)
    if isinstance(found, str):
        return Finding(name, "none", Verdict.UNKNOWN, found)
    source, elpd = found
    shapes, joint = elpd["pareto_k"].values, elpd["pareto_k_joint"]
    bad = shapes > elpd["good_k"]
    value = f"{elpd['elpd_loo']:.1f} ± {elpd['se']:.1f}, {bad.sum()} of {shapes.size} k̂ bad"
    if not bad.any():
        return Finding(name, value, Verdict.GOOD, f"by draws of {source}")
    if joint > elpd["good_k"] or not (bad & (shapes > joint + OWN)).any():
        return Finding(
            name,
            value,
            Verdict.DOUBTFUL,
            f"the weights of {source} as a whole, whose k̂ is {joint:.2f} with these draws, leave "
            "no room for those of single data",
            "an approximation that is closer, more draws, or NUTS",
        )
    order = np.argsort(-shapes.ravel())[:3]
    worst = ", ".join(str(tuple(map(int, np.unravel_index(p, shapes.shape)))) for p in order)
    return Finding(
        name,
        value,
        Verdict.DOUBTFUL,
        f"by draws of {source}: single data move the posterior by more than importance weights "
        f"can follow, the most at {worst}",
        "look at these data; a likelihood with longer tails, or a refit without them",
    )


def calibrated(name: str, found: Any, in_sample: bool) -> Finding:
    """Whether predictions are calibrated on what was observed."""
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
    """What is not looked at, as a mask hides some of it.

    Args:
        check: its name.
        count: how many elements.
        size: of how many.
    """
    meaning = f"{count} of {size} elements are masked: what stands in their place is no observation"
    remedy = "pass calibration and predictive_p_values what is observed alone"
    return Finding(check, "not known", Verdict.UNKNOWN, meaning, remedy)


def replicated(evidence: Evidence) -> list[Finding]:
    """Whether replicated data are like the observed ones."""
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
    odd = [
        f"the {name} of the data, {row['observed']:.4g}, is unlike that of replicated data, "
        f"{row['replicated_mean']:.4g} ± {row['replicated_sd']:.2g}"
        for name, row in rows.iterrows()
        if min(row["p_value"], 1 - row["p_value"]) < TAIL
    ]
    if not odd:
        return Finding(check, value, Verdict.GOOD, "data replicated by the model are like these")
    return Finding(
        check,
        value,
        Verdict.DOUBTFUL,
        "; ".join(odd),
        "look at az.plot_ppc(to_inference_data(...)); another likelihood or predictor",
    )


STATISTICS: Mapping[str, Callable[[np.ndarray], float]] = {
    "smallest": np.min,
    "largest": np.max,
    "standard deviation": np.std,
}
