"""Nested inference on simulated data: ranks of the true spread, and errors of the evidence.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/nested_calibration.py --host numpyro \
        --out docs/experiments/nested_calibration.json

``ranks`` draws 200 times all parameters of a logistic hierarchy from its prior, and data; the
cumulated posterior of the spread at its true value is uniform if the posterior is right. ``fits``
does the same with the marginals of fits of guides, and with linear response about them.
``evidence`` compares the log evidence of 40 Poisson hierarchies with quadrature of each group.
``likelihoods`` has 60 data sets of each model of `nested_likelihoods`, ranks of all its scalars
and what failed, in a file of its own.
"""

import json
import warnings

import harness
import numpy as np
from covariances import written
from covariances_models import logistic, observed
from nested_likelihoods import LIKELIHOODS
from scipy.special import gammaln, logsumexp
from scipy.stats import chi2, norm

GROUPS, ROWS, CELLS = 12, 5, 10
SETS = {"ranks": 200, "fits": 200, "evidence": 40, "likelihoods": 60}
FEWER_CELLS, DOUBTFUL = 6, 0.5
GUIDES = {"mean field": "DVIGuide", "all covariances": "GaussianGuide"}
NEWTON = {"method": "newton", "float64": True, "progress_bar": False}
LEVEL, SPREAD = np.linspace(-5, 5, 201)[:, None], np.exp(np.arange(-9.0, 2.01, 0.1))
ETA = np.arange(-20.0, 12.0, 0.01)
NARROW = int((SPREAD < 0.1).sum())  # spreads within which likelihoods are smooth
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NORMAL = 0.01 * norm.pdf(ETA, LEVEL[..., None], SPREAD[NARROW:, None])


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --out --only",
        task=("ranks", "what is measured", [*TASKS]),
        sets=(0, "of data, if not as many as above"),
    )
    if options.task == "likelihoods":
        return likelihoods(options)
    sets = options.sets or SETS[options.task]
    task = (options.host, options.task, sets, options.only)
    (found,) = harness.in_processes(measured, [task])
    print(options.task, json.dumps(found))
    if options.out:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        parts = known.setdefault(options.task, {}).setdefault(options.host, {})
        parts |= found
        options.out.write_text(written(known))


def measured(host_name, task, sets, name):
    """What a task finds, of models or guides with such a name where it has several."""
    host = harness.load(host_name)
    with host.own_parameters(), host.doubles():
        return TASKS[task](host, sets, name)


def hierarchy(host, kind):
    """Groups with intercepts of their own, of an unknown spread."""
    dist = host.dist

    def model(group, y):
        level = host.sample("level", dist.Normal(0.0, 1.0))
        spread = host.sample("spread", dist.HalfNormal(1.0))
        with host.plate("groups", GROUPS):
            effect = host.sample("effect", dist.Normal(0.0, spread))
        eta = level + effect[group]
        binary = kind == "binary"
        observed(host, dist.Bernoulli(logits=eta) if binary else dist.Poisson(host.np.exp(eta)), y)

    return model


GROUP = np.repeat(np.arange(GROUPS), ROWS)


def simulated(generator, kind):
    """A spread, and data of the model with it."""
    level, spread = generator.normal(), abs(generator.normal())
    eta = (level + spread * generator.normal(size=GROUPS))[GROUP]
    if kind == "binary":
        return spread, (generator.random(len(eta)) < logistic(eta)).astype(float)
    return spread, generator.poisson(np.exp(eta)).astype(float)


def posterior(host, model, y):
    """The posterior of one data set."""
    return host.package.nested(model, host.array(GROUP), host.array(y))


def ranks(host, sets, _):
    """Where the true spread is in its posterior, in equal cells."""
    generator, model = np.random.default_rng(1), hierarchy(host, "binary")
    found = []
    for _ in range(sets):
        spread, y = simulated(generator, "binary")
        found.append(float(posterior(host, model, y).marginal("spread").cdf(spread)))
    return {"of": sets} | uniformity(found, CELLS)


def uniformity(found, cells):
    """Counts of numbers between 0 and 1 in equal cells, and whether they are uniform."""
    counts = np.histogram(found, np.linspace(0, 1, cells + 1))[0]
    mean = len(found) / cells
    p = chi2.sf(((counts - mean) ** 2).sum() / mean, cells - 1)
    return {"counts": counts.tolist(), "p": float(f"{p:.3g}")}


def fits(host, sets, only):
    """Where the true spread is in marginals of guides and of linear response about them."""
    generator, model = np.random.default_rng(1), hierarchy(host, "binary")
    guides, found, failed = [title for title in GUIDES if only in title], {}, {}
    for number in range(sets):
        spread, y = simulated(generator, "binary")
        for title in guides:
            guide = getattr(host.package, GUIDES[title])()
            try:
                marginals = of_guide(host, model, guide, y)
            except Exception as error:  # the other data sets may still be fitted
                failed[f"{title}, {number}"] = str(error).splitlines()[0]
                continue
            for part, (mean, deviation) in marginals.items():
                place = float(norm.cdf(np.log(spread), mean, deviation))
                found.setdefault(f"{title}{part}", []).append(place)
    parts = {name: uniformity(each, CELLS) for name, each in found.items()}
    return parts | {f"failed, {title}": text for title, text in failed.items()}


def of_guide(host, model, guide, y):
    """Mean and standard deviation of the spread's logarithm, by a guide and by its response."""
    data = host.array(GROUP), host.array(y)
    fit = host.package.fit(model, guide, *data, **NEWTON)
    response = host.package.linear_response(model, fit, *data)
    corrected = response.location("spread"), response.standard_deviation("spread")
    return {"": host.located(fit.params)["spread"], ", linear response": corrected}


def log_evidence(y):
    """By sums over predictors of each group, and over level and spread."""
    total = norm.logpdf(LEVEL) + np.log(2) + norm.logpdf(SPREAD) + np.log(SPREAD)
    for counts in y.reshape(GROUPS, ROWS):
        logs = counts.sum() * ETA - ROWS * np.exp(ETA)
        with np.errstate(divide="ignore"):
            wide = np.log(NORMAL @ np.exp(logs - logs.max())) + logs.max()
        eta = LEVEL[..., None] + SPREAD[:NARROW, None] * NODES
        logs = counts.sum() * eta - ROWS * np.exp(eta)
        narrow = logsumexp(logs, axis=-1, b=WEIGHTS / WEIGHTS.sum())
        total = total + np.concatenate([narrow, wide], 1) - gammaln(counts + 1).sum()
    return logsumexp(total) + np.log((LEVEL[1, 0] - LEVEL[0, 0]) * np.log(SPREAD[1] / SPREAD[0]))


def evidence(host, sets, _):
    """Errors of the log evidence and their predictions, and the gap of the ELBO."""
    generator, model = np.random.default_rng(2), hierarchy(host, "counts")
    rows = []
    for _ in range(sets):
        _, y = simulated(generator, "counts")
        found, exact = posterior(host, model, y), log_evidence(y)
        error = found.log_evidence - exact
        rows.append([error, found.log_evidence_error, found.correction, found.correction - error])
    errors, predicted, corrections, gaps = np.array(rows).T
    counted = (gaps > 0.01) & (gaps < 0.5)
    return {
        "covered": int((np.abs(errors) <= predicted).sum()),
        "of": sets,
        "largest error": round(float(np.abs(errors).max()), 5),
        "median predicted error": round(float(np.median(predicted)), 5),
        "gaps of the ELBO": [round(float(each), 4) for each in np.quantile(gaps, [0, 0.5, 1])],
        "worst prediction of a gap": round(float(np.abs(corrections / gaps - 1)[counted].max()), 4),
    }


def likelihoods(options):
    """Each model in a process of its own; what is measured is added to the file."""
    for name in LIKELIHOODS:
        if options.only not in name:
            continue
        sets = options.sets or SETS["likelihoods"]
        (found,) = harness.in_processes(measured, [(options.host, "likelihoods", sets, name)])
        print(f"{name:28s} {json.dumps(found, ensure_ascii=False)}", flush=True)
        if options.out:
            known = json.loads(options.out.read_text()) if options.out.exists() else {}
            known.setdefault(name, {})[options.host] = found
            options.out.write_text(written(known))


def of_likelihood(host, sets, name):
    """Ranks of the scalars of simulated data, and what failed, by the number that is its seed."""
    simulation = LIKELIHOODS[name]
    model, found, failed = simulation.make(host), {}, {}
    seconds = -harness.processor_seconds()
    for seed in range(sets):
        truth, y = simulation.draw(np.random.default_rng(seed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                inferred = host.package.nested(model, host.array(y.astype(float)))
                places = {site: cumulated(inferred, site, at) for site, at in truth.items()}
            reasons = complaints(inferred, places.values())
        except Exception as error:  # the other data sets may still be inferred
            places, reasons = {}, [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
        if reasons:
            failed[str(seed)] = reasons
        for site, place in places.items():
            found.setdefault(site, []).append(place)
    return {
        "of": sets,
        "failed": failed,
        "ranks": {site: uniformity(parts, FEWER_CELLS) for site, parts in found.items()},
        "seconds": round(seconds + harness.processor_seconds(), 1),
    }


def cumulated(inferred, site, at):
    """The cumulated posterior of a scalar at its true value."""
    return float(inferred.marginal(site).cdf(at))


def complaints(inferred, places):
    """What a posterior itself says against it, and figures that cannot be."""
    reasons = list(inferred.warnings)
    if not np.isfinite([inferred.log_evidence, inferred.log_evidence_error, *places]).all():
        reasons.append("figures that are not finite")
    if inferred.log_evidence_error > DOUBTFUL:
        reasons.append(f"evidence that may be {inferred.log_evidence_error:.2f} nats off")
    return reasons


TASKS = {"ranks": ranks, "fits": fits, "evidence": evidence, "likelihoods": of_likelihood}


if __name__ == "__main__":
    main()
