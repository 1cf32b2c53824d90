"""Fits and their linear response beside NUTS: a regression, a hierarchy, networks.

    python benchmarks/nuts_comparison.py [--host pyro] [--yacht yacht.npz] [--only NAME]

Each model is trained by Newton's method in double precision and compared with NUTS by
`compare_with_nuts`; `--check` asks of regressions that means are within 0.05 standard deviations of
NUTS' (and twice its Monte Carlo error), standard deviations of linear response within 10 %, and of
networks that predictive means are within 0.25 predictive standard deviations on average. Networks
take their chains in Pyro, where those take hours, from a file that NumPyro wrote: `--write FOLDER`,
then `--host pyro --read FOLDER`.
"""

import time
from collections import namedtuple
from pathlib import Path

import harness
import numpy as np
from models import hierarchy, linear, network_regression, regression_by
from sklearn.datasets import load_diabetes

HIDDEN, GROUPS = 20, 20
MEAN, SCALE, PREDICTED = 0.05, 0.1, 0.25
# A model of a host by name, its data, and inputs for predictions of a network.
Case = namedtuple("Case", "name model data test", defaults=[None])


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--only --check",
        host=("numpyro", "that is compared", [*harness.VERSIONS]),
        yacht=(Path, "file with X [N, 6] and y [N]"),
        draws=(5000, "of each of 4 chains"),
        write=(Path, "folder for the chains"),
        read=(Path, "folder with chains, which are not run then"),
    )
    host, missed = harness.load(options.host), []
    networks = options.host == "numpyro" or options.read is not None
    for case in cases(options.yacht, networks):
        if options.only not in case.name:
            continue
        start, file = time.perf_counter(), "_".join(case.name.replace(",", "").split()) + ".nc"
        comparison = compared(host, case, options, file)
        if options.write:
            comparison.inference_data["NUTS"].to_netcdf(options.write / file)
        print(f"\n## {case.name}\n{comparison}\n({time.perf_counter() - start:.0f} s)", flush=True)
        missed += [f"{case.name}: {line}" for line in failures(case, comparison)]
    print("\n".join(missed))
    if options.check and missed:
        raise SystemExit(1)


def cases(yacht, networks):
    """A regression, groups with a covariate, and networks: every tenth row is predicted."""
    diabetes = harness.standardised(*load_diabetes(return_X_y=True))
    generator, group = np.random.default_rng(1), np.repeat(np.arange(GROUPS), 15)
    x = generator.normal(size=group.size)
    intercepts = generator.normal(1.0, 0.7, size=GROUPS)
    y = intercepts[group] + 0.5 * x + 0.4 * generator.normal(size=x.size)
    yield Case("diabetes, linear", "regression", diabetes)
    yield Case("20 groups", "hierarchy", (x, group, y))
    sets = {"diabetes": diabetes} if networks else {}
    if networks and yacht is not None:
        sets["yacht"] = harness.standardised(*harness.read(yacht, "X", "y"))
    for name, (x, y) in sets.items():
        test = np.random.default_rng(0).permutation(len(y)) % 10 == 0
        yield Case(f"{name}, 1 × 20", "network", (x[~test], y[~test]), (x[test],))


def compared(host, case, options, file):
    """A fit by Newton's method beside NUTS; L-BFGS brings it near to the optimum of a network."""
    model = {
        "regression": lambda: regression_by(host, linear(host)),
        "hierarchy": lambda: hierarchy(host, GROUPS, 2.0, host.dist.HalfNormal(1.0)),
        "network": lambda: network_regression(host, HIDDEN),
    }[case.model]()
    chains = {"num_samples": options.draws, "reference": None}
    if options.read:
        import arviz

        chains["reference"] = arviz.from_netcdf(options.read / file)
    if host.NAME == "Pyro":  # of one chain, and not of four
        chains["num_warmup"] = options.draws
    with host.doubles():
        data = tuple(map(host.array, case.data))
        test = None if case.test is None else tuple(map(host.array, case.test))
        if case.model == "network":
            near = harness.fitted(host, model, *data, method="lbfgs", float64=True)
            newton = {"method": "newton", "float64": True, "steps": 600}
            newton |= {"params": near.params} if host.NAME == "NumPyro" else {}
            fit = host.package.fit(model, near.guide, *data, **newton)
            fit.seconds["lbfgs"] = sum(near.seconds.values())
        else:
            fit = harness.fitted(host, model, *data, method="newton", float64=True)
        return host.package.compare_with_nuts(model, fit, *data, test=test, **chains)


def failures(case, comparison):
    """What a comparison falls short of."""
    if case.model == "network":
        for part in comparison.predictive:
            if (mean := np.abs(part.difference).mean()) > PREDICTED:
                yield f"{part.source}: predictive means off by {mean:.2f} sd on average"
        return
    for site in comparison.sites:
        excess = np.abs(site.difference) - np.maximum(MEAN, 2 * site.error)
        if (excess > 0).any():
            yield f"{site.name}: a mean is off by {np.abs(site.difference).max():.3f} sd"
        ratios = site.ratios.get("linear response", np.array(np.nan))
        if not (np.abs(ratios - 1) < SCALE).all():
            yield f"{site.name}: sd {ratios.min():.2f} to {ratios.max():.2f}"


if __name__ == "__main__":
    main()
