"""The single checks of a diagnosis; each returns a finding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy

from moment_calculus.numerics.pareto import EVEN, ImportanceWeights, largest_reliable_shape
from moment_calculus.predictions.marginals import CountMarginal
from moment_calculus.predictions.site import PredictedSite
from moment_inference.criticism.calibration.calibration import calibration
from moment_inference.criticism.calibration.coverage import SIGNIFICANT
from moment_inference.criticism.calibration.replications import STATISTICS
from moment_inference.criticism.comparison.differences import positive
from moment_inference.criticism.diagnosis.advice import (
    POINT,
    UNCONFIRMED,
    WITH_COVARIANCES,
    advise_others,
    advise_weights,
    is_joint,
)
from moment_inference.criticism.diagnosis.findings import Diagnosis, Finding, Verdict
from moment_inference.criticism.diagnosis.gain import check_gain
from moment_inference.criticism.diagnosis.inputs import MAX_ENTRIES, DiagnosisInputs
from moment_inference.criticism.diagnosis.means import JOINT, about_means, check_means
from moment_inference.criticism.diagnosis.nested import check_nested
from moment_inference.criticism.draws import Arrays, most_influential
from moment_inference.criticism.fitted_model import LINEAR_RESPONSE, RESPONSE_ERRORS, FittedModel
from moment_inference.criticism.fitted_nested import FittedNested
from moment_inference.errors import NotAnOptimum
from moment_inference.optimisation.outcome import AGREES, CANNOT_TELL, NOT_RUN, ByDraws
from moment_inference.response.response import Response

NARROW, WIDE = 0.8, 1.25  # ratios to the right standard deviations beyond which they are wrong
Ratios = dict[str, np.ndarray]  # by quoted site, twice if its support is not the real line
MANY_COORDINATES = 50  # coordinates above which k̂ is large for almost any approximation


def advise(inputs: DiagnosisInputs) -> str:
    """Return advice on what is better than the guide."""
    if inputs.fitted_model.dependence.is_strong:
        return JOINT
    if LINEAR_RESPONSE not in inputs.fitted_model.approximations:
        return advise_others(inputs)
    weights = inputs.weights(LINEAR_RESPONSE)
    if has_wrong_scales(inputs, LINEAR_RESPONSE):
        return advise_weights(inputs.best_source)
    if isinstance(weights, ImportanceWeights) and not weights.is_reliable:
        if inputs.reliable_weights:
            return advise_weights(inputs.best_source)
        return advise_others(inputs) if inputs.size <= MANY_COORDINATES else UNCONFIRMED
    response = "use linear_response, which corrects them without a refit"
    return response if is_joint(inputs) else f"{response}, or {WITH_COVARIANCES}"


def check_scales(inputs: DiagnosisInputs, source: str) -> Finding | None:
    """Judge whether an approximation's standard deviations are too small or too large."""
    of_guide = source == inputs.fitted_model.approximation
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
    ratios = scale_ratios(inputs, source) if source in inputs.fitted_model.approximations else ""
    return not isinstance(ratios, str) and any(
        np.nanmin(part) < NARROW or np.nanmax(part) > widest for part in ratios.values()
    )


def _describe_wrong(ratios: Ratios, narrow: bool) -> list[str]:
    """Return which sites are too narrow or too wide, with the largest factor."""
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
    best = fitted_model.approximations[-1] if weights is None else inputs.best_source
    if weights is None and isinstance(fitted_model.response, str):
        return fitted_model.response
    if weights is None and source == best:
        return "no importance weights can be trusted"
    try:
        own, right = (fitted_model.coordinates(each).scale for each in (source, best))
        if weights is None:
            return {f"'{site}'": own[site] / right[site] for site in own}
        return _weighted(inputs, (source, own), (best, right), weights)
    except RESPONSE_ERRORS as error:
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
            f"the parameters are an optimum of {inputs.fitted_model.loss_name}",
        )
    error = inputs.fitted_model.response_error
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
    name, weights = f"k̂ of {source}", inputs.weights(source)
    if isinstance(weights, str):
        meaning = f"there are no importance weights: {weights}"
        return Finding(name, "none", Verdict.UNKNOWN, meaning)
    value, of_guide = str(weights), source == inputs.fitted_model.approximation
    if weights.share > EVEN:
        return Finding(name, value, Verdict.GOOD, "the weights are all but constant")
    if weights.is_reliable and _is_narrow(inputs, source):
        meaning = (
            f"k̂ is low as draws of {source}, which are too narrow, do not reach what would give "
            "their weights a tail"
        )
        return Finding(name, value, Verdict.BAD, meaning, advise(inputs))
    if weights.is_reliable:
        meaning = "importance weights correct what is left to the posterior"
        return Finding(name, value, Verdict.GOOD, meaning)
    if inputs.size > MANY_COORDINATES:
        meaning = (
            f"{value}: draws do not stand for draws of the posterior. With {inputs.size} "
            "coordinates k̂ does not tell right predictions from wrong means"
        )
        remedy = "judge by predictions, on held-out data, or compare_with_nuts"
        return Finding(name, value, Verdict.DOUBTFUL, meaning, remedy)
    limit = largest_reliable_shape(weights.log.size)
    cause = f": {float(weights.shape):.2f} > {limit:.2f}" if weights.is_heavy else ""
    meaning = (
        f"{value}{cause}: {source} is far from the posterior in some direction: "
        f"{about_means(inputs)}, and importance weights do not correct them"
    )
    takes_advice = of_guide or inputs.fitted_model.dependence.is_strong
    return Finding(
        name, value, Verdict.BAD, meaning, advise(inputs) if takes_advice else advise_others(inputs)
    )


def _is_narrow(inputs: DiagnosisInputs, source: str) -> bool:
    """Return whether an approximation is narrower than the best one."""
    return source != inputs.best_source and has_wrong_scales(inputs, source, widest=np.inf)


def check_narrower_variances(inputs: DiagnosisInputs) -> Finding | None:
    """Report corrected variances below the guide's: an exact ELBO has none."""
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
    source, scores = result
    shapes, is_bad = scores.shapes, scores.is_bad
    value = f"{scores.total:.1f} ± {scores.error:.1f}, {is_bad.sum()} of {shapes.size} k̂ bad"
    first = f"the most influential datum is {most_influential(shapes)}, k̂ {shapes.max():.2f}"
    is_posterior = inputs.fitted_model.draws_posterior
    if inputs.reliable_weights is None and not is_posterior:
        meaning = (
            f"no weights of all latent sites together can be trusted: draws of {source} count as "
            f"those of the posterior here, as by loo(..., importance_weights=False); {first}"
        )
        return Finding(name, value, Verdict.DOUBTFUL, meaning, "compare_with_nuts")
    by = f"by {'' if is_posterior else 'weighted '}draws of {source}"
    if not is_bad.any():
        return Finding(name, value, Verdict.GOOD, f"{by}; {first}")
    meaning = (
        f"{by}: single data move the posterior by more than importance "
        f"weights can follow, the most at {most_influential(shapes, 3)}; {first}"
    )
    remedy = "look at these data; a likelihood with longer tails, or a refit without them"
    if not (is_bad & inputs.is_influential(site)).any():
        meaning = (
            f"the weights of {source} as a whole, with k̂ {scores.joint_shape:.2f}, leave no room "
            f"for those of single data; {first}"
        )
        remedy = "more draws, num_samples=...; or compare_with_nuts"
    return Finding(name, value, Verdict.DOUBTFUL, meaning, remedy)


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
    """Return the finding where ``count`` of ``size`` elements are masked."""
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
        shown = [name for name in observed if name not in hidden]
        rows = inputs.p_values(shown, STATISTICS)
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


def check_loss_by_draws(estimate: ByDraws) -> Finding:
    """Judge whether draws of the guide give the same loss as propagated moments."""
    check, answer = "loss by draws", estimate.answer
    if answer == NOT_RUN:
        return Finding(check, "not known", Verdict.UNKNOWN, estimate.note)
    value = str(estimate).removeprefix("by draws ")
    if answer == AGREES:
        return Finding(check, value, Verdict.GOOD, "moments give the loss that draws give")
    if answer == CANNOT_TELL:
        meaning = "draws are too few, or their tail too heavy, to confirm the closed form"
        return Finding(check, value, Verdict.DOUBTFUL, meaning, f"train with {estimate.note}")
    meaning = (
        "moments on the way are approximated too coarsely: the loss is another one by draws of "
        "the same guide, and so may be the optimum"
    )
    return Finding(check, value, Verdict.BAD, meaning, f"train with {estimate.note}")


PRIOR_DRAWS, FEWEST_PRIOR_DRAWS = 1000, 100
BAD_PRIOR, DOUBTFUL_PRIOR = 0.001, 0.01  # significance levels of a conflict
LEARNT = 0.1  # smallest share by which data are taken to reduce a prior variance


def check_prior_conflict(inputs: DiagnosisInputs) -> Finding:
    """Judge whether posterior means lie where the prior hardly allows them.

    If the model is right, a posterior mean varies about the prior mean with the prior
    variance less the posterior variance, on the unconstrained space. Bonferroni's
    inequality allows for many coordinates. Source: Box 1980; Evans and Moshonov 2006,
    Checking for prior-data conflict.
    """
    distances = _distances(inputs)
    if isinstance(distances, str):
        return Finding(
            "prior", "not known", Verdict.UNKNOWN, f"nothing compares with it: {distances}"
        )
    worst = max(distances, key=lambda site: float(np.max(distances[site])))
    largest, size = float(np.max(distances[worst])), sum(part.size for part in distances.values())
    value = f"means up to {largest:.1f} deviations off"
    bad, doubtful = _limit(BAD_PRIOR, size), _limit(DOUBTFUL_PRIOR, size)
    if largest < doubtful:
        return Finding(
            "prior", value, Verdict.GOOD, "the posterior lies where the prior expects it"
        )
    off = [f"'{site}'" for site, part in distances.items() if np.max(part) > doubtful]
    return Finding(
        "prior",
        value,
        Verdict.BAD if largest > bad else Verdict.DOUBTFUL,
        f"prior and data contradict each other at {', '.join(off)}, the most at '{worst}': there "
        f"the posterior mean is {largest:.1f} standard deviations from where the prior expects it",
        "look at prior draws (to_inference_data); a prior that is wider or elsewhere, or units of "
        "the data that suit it",
    )


def _limit(chance: float, size: int) -> float:
    return float(-scipy.special.ndtri(chance / 2 / size))


def _distances(inputs: DiagnosisInputs) -> dict[str, np.ndarray] | str:
    """Return |posterior − prior mean| by site, in units of its deviation."""
    fitted_model = inputs.fitted_model
    count = min(PRIOR_DRAWS, MAX_ENTRIES // max(1, inputs.size))
    if count < FEWEST_PRIOR_DRAWS:
        return f"draws of {inputs.size} coordinates take too much memory"
    with fitted_model.posterior.model_context():
        prior = fitted_model.model.prior(count)
    if isinstance(prior, str):
        return prior
    try:
        posterior = fitted_model.coordinates(fitted_model.approximations[-1])
        prior_draws = fitted_model.unconstrained(
            {site: prior.sites[site] for site in fitted_model.latent}
        )
    except RESPONSE_ERRORS as error:
        return str(error)
    return {
        site: _distance(posterior.loc[site], posterior.scale[site], values)
        for site, values in prior_draws.items()
    }


def _distance(loc: np.ndarray, scale: np.ndarray, prior: np.ndarray) -> np.ndarray:
    centre, variance = np.median(prior, axis=0), prior.var(0, ddof=1)
    left = np.maximum(variance - scale**2, LEARNT * variance)
    return np.abs(loc - centre) / np.sqrt(np.where(left > 0, left, np.inf))


def run_checks(fitted_model: FittedModel, num_samples: int) -> Diagnosis:
    """Run all checks; predictions are checked on held-out data if there are any."""
    inputs = DiagnosisInputs(fitted_model, num_samples)
    title = f"{fitted_model.approximation} of {inputs.size} coordinates in {fitted_model.framework}"
    findings = tuple(_findings(inputs))
    fitted_model.check_observed()  # last, because draws of Pyro follow from their order
    return Diagnosis(title, findings)


def _findings(inputs: DiagnosisInputs) -> Iterator[Finding]:
    fitted_model = inputs.fitted_model
    if isinstance(fitted_model, FittedNested):
        yield from check_nested(fitted_model)
    else:
        yield from _of_guide(inputs)
    yield check_prior_conflict(inputs)
    for site in fitted_model.observed:
        yield check_influence(inputs, site)
    yield from _calibrations(inputs)
    yield from check_replications(inputs)


def _of_guide(inputs: DiagnosisInputs) -> Iterator[Finding]:
    fitted_model = inputs.fitted_model
    yield check_optimum(inputs)
    if fitted_model.by_draws is not None:
        yield check_loss_by_draws(fitted_model.by_draws)
    if finding := check_means(inputs):
        yield finding
    for source in fitted_model.approximations:
        yield check_weights(inputs, source)
    for source in fitted_model.approximations:
        if finding := check_scales(inputs, source):
            yield finding
    if finding := check_narrower_variances(inputs):
        yield finding


def _calibrations(inputs: DiagnosisInputs) -> Iterator[Finding]:
    fitted_model = inputs.fitted_model
    observed, masked = fitted_model.held_out, fitted_model.masked(held_out=True)
    try:
        predictions = fitted_model.predictions(fitted_model.approximation)
    except RESPONSE_ERRORS as error:
        yield Finding("calibration", "none", Verdict.UNKNOWN, f"nothing is predicted: {error}")
        return
    for name, value in observed.items():
        if name in masked:
            yield masked_finding(f"calibration of {name}", masked[name], value.size)
        elif name in predictions:
            prediction = inputs.mixtures[name] if _is_slow(predictions[name]) else predictions[name]
            yield _calibration(name, prediction, value, fitted_model.test is None)
            if name in fitted_model.observed and (gain := check_gain(inputs, name, prediction)):
                yield gain


def _is_slow(prediction: PredictedSite) -> bool:
    """Return whether each probability of a count takes two nested quadratures."""
    marginal = prediction.marginal
    return isinstance(marginal, CountMarginal) and marginal.random_parameters > 1


def _calibration(name: str, prediction: Any, value: Any, in_sample: bool) -> Finding:
    try:
        return check_calibration(name, calibration(prediction, value), in_sample)
    except RESPONSE_ERRORS as error:
        check = f"calibration of {name}"
        return Finding(check, "not known", Verdict.UNKNOWN, str(error))
