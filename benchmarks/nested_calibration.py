"""Nested inference on simulated data: ranks of the true spread, and errors of the evidence.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/nested_calibration.py --host numpyro \
        --out docs/experiments/nested_calibration.json

``ranks`` draws 200 times all parameters of a logistic hierarchy from its prior, and data; the
cumulated posterior of the spread at its true value is uniform if the posterior is right.
``evidence`` compares the log evidence of 40 Poisson hierarchies with quadrature of each group.
"""

import json

import harness
import numpy as np
from covariances import written
from covariances_models import logistic, observed
from scipy.special import gammaln, logsumexp
from scipy.stats import chi2, norm

GROUPS, ROWS, CELLS = 12, 5, 10
RANKS, SETS = 200, 40
LEVEL, SPREAD = np.linspace(-5, 5, 201)[:, None], np.exp(np.arange(-9.0, 2.01, 0.1))
ETA = np.arange(-20.0, 12.0, 0.01)
NARROW = int((SPREAD < 0.1).sum())  # spreads within which likelihoods are smooth
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NORMAL = 0.01 * norm.pdf(ETA, LEVEL[..., None], SPREAD[NARROW:, None])


def main(arguments=None):
    options = harness.parse(
        __doc__, arguments, "--host --out", task=("ranks", "what is measured", [*TASKS])
    )
    (found,) = harness.in_processes(measured, [(options.host, options.task)])
    print(options.task, json.dumps(found))
    if options.out:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        known.setdefault(options.task, {})[options.host] = found
        options.out.write_text(written(known))


def measured(host_name, task):
    """What a task finds."""
    host = harness.load(host_name)
    with host.own_parameters(), host.doubles():
        return TASKS[task](host)


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


def ranks(host):
    """Where the true spread is in its posterior, in equal cells."""
    generator, model = np.random.default_rng(1), hierarchy(host, "binary")
    found = []
    for _ in range(RANKS):
        spread, y = simulated(generator, "binary")
        found.append(float(posterior(host, model, y).marginal("spread").cdf(spread)))
    counts = np.histogram(found, np.linspace(0, 1, CELLS + 1))[0]
    statistic = ((counts - RANKS / CELLS) ** 2 / (RANKS / CELLS)).sum()
    return {"counts": counts.tolist(), "p": round(float(chi2.sf(statistic, CELLS - 1)), 4)}


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


def evidence(host):
    """Errors of the log evidence and their predictions, and the gap of the ELBO."""
    generator, model = np.random.default_rng(2), hierarchy(host, "counts")
    rows = []
    for _ in range(SETS):
        _, y = simulated(generator, "counts")
        found, exact = posterior(host, model, y), log_evidence(y)
        error = found.log_evidence - exact
        rows.append([error, found.log_evidence_error, found.correction, found.correction - error])
    errors, predicted, corrections, gaps = np.array(rows).T
    counted = (gaps > 0.01) & (gaps < 0.5)
    return {
        "covered": int((np.abs(errors) <= predicted).sum()),
        "of": SETS,
        "largest error": round(float(np.abs(errors).max()), 5),
        "median predicted error": round(float(np.median(predicted)), 5),
        "gaps of the ELBO": [round(float(each), 4) for each in np.quantile(gaps, [0, 0.5, 1])],
        "worst prediction of a gap": round(float(np.abs(corrections / gaps - 1)[counted].max()), 4),
    }


TASKS = {"ranks": ranks, "evidence": evidence}


if __name__ == "__main__":
    main()
