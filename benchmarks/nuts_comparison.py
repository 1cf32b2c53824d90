"""Fits and their linear response beside NUTS: a regression, a hierarchy, networks.

    python benchmarks/nuts_comparison.py [--host pyro] [--yacht yacht.npz] [--only NAME]

Each model is trained by Newton's method in double precision and compared with NUTS by
`compare_with_nuts`; `--check` asks of regressions that means are within 0.05 standard deviations of
NUTS' (and twice its Monte Carlo error), standard deviations of linear response within 10 %, and of
networks that predictive means are within 0.25 predictive standard deviations on average. Networks
take their chains in Pyro, where those take hours, from a file that NumPyro wrote: `--write FOLDER`,
then `--host pyro --read FOLDER`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import hosts
import numpy as np
from models import hierarchy, linear, network_regression, regression_by
from sklearn.datasets import load_diabetes

HIDDEN, GROUPS = 20, 20
MEAN, SCALE, PREDICTED = 0.05, 0.1, 0.25


@dataclass(frozen=True)
class Case:
    """A model of a host by name, its data, and arguments for predictions."""

    name: str
    model: str
    data: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...] | None = None

    @property
    def file(self) -> str:
        return "_".join(self.name.replace(",", "").split()) + ".nc"

    def read(self, folder: Path) -> Any:
        import arviz

        return arviz.from_netcdf(folder / self.file)

    @property
    def is_network(self) -> bool:
        return self.model == "network"


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    return standardised(*load_diabetes(return_X_y=True))


def standardised(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def groups(count: int = GROUPS, size: int = 15) -> tuple[np.ndarray, ...]:
    """A covariate, the group of each row, an outcome."""
    generator = np.random.default_rng(1)
    group = np.repeat(np.arange(count), size)
    x = generator.normal(size=count * size)
    intercepts = generator.normal(1.0, 0.7, size=count)
    y = intercepts[group] + 0.5 * x + 0.4 * generator.normal(size=x.size)
    return x, group, y


def held_out(name: str, x: np.ndarray, y: np.ndarray) -> Case:
    """A network; every tenth row is predicted."""
    test = np.random.default_rng(0).permutation(len(y)) % 10 == 0
    return Case(name, "network", (x[~test], y[~test]), (x[test],))


def cases(yacht: Path | None, networks: bool) -> list[Case]:
    chosen = [
        Case("diabetes, linear", "regression", diabetes()),
        Case("20 groups", "hierarchy", groups()),
    ]
    if networks:
        chosen.append(held_out("diabetes, 1 × 20", *diabetes()))
        if yacht is not None:
            with np.load(yacht) as arrays:
                chosen.append(held_out("yacht, 1 × 20", *standardised(arrays["X"], arrays["y"])))
    return chosen


def models(host: Any) -> dict[str, Callable]:
    """Models by name; their weights, effects and means have normal priors."""
    return {
        "regression": regression_by(host, linear(host)),
        "hierarchy": hierarchy(host, GROUPS, 2.0, host.dist.HalfNormal(1.0)),
        "network": network_regression(host, HIDDEN),
    }


def compared(host: ModuleType, case: Case, draws: int, reference: Any) -> Any:
    """A fit by Newton's method beside NUTS."""
    model = models(host)[case.model]
    with host.doubles():
        data = tuple(map(host.array, case.data))
        test = None if case.test is None else tuple(map(host.array, case.test))
        if case.is_network:
            fit = hosts.newton_after_lbfgs(host, model, *data)
        else:
            fit = hosts.fitted(host, model, *data, method="newton", float64=True)
        options = {"test": test, "reference": reference, "num_samples": draws}
        if host.NAME == "Pyro":  # of one chain, and not of four
            options["num_warmup"] = draws
        return host.package.compare_with_nuts(model, fit, *data, **options)


def failures(case: Case, comparison: Any) -> list[str]:
    """What a comparison falls short of."""
    missed = []
    if not case.is_network:
        for site in comparison.sites:
            excess = np.abs(site.difference) - np.maximum(MEAN, 2 * site.error)
            if (excess > 0).any():
                largest = np.abs(site.difference).max()
                missed.append(f"{site.name}: a mean is off by {largest:.3f} sd")
            ratios = site.ratios.get("linear response", np.array(np.nan))
            if not (np.abs(ratios - 1) < SCALE).all():
                missed.append(f"{site.name}: sd {ratios.min():.2f} to {ratios.max():.2f}")
    if case.is_network:
        for part in comparison.predictive:
            if (mean := np.abs(part.difference).mean()) > PREDICTED:
                missed.append(f"{part.source}: predictive means off by {mean:.2f} sd on average")
    return [f"{case.name}: {line}" for line in missed]


def main() -> None:
    parser = hosts.parser(__doc__, "--host", "--only", "--check")
    parser.set_defaults(host="numpyro")
    parser.add_argument("--yacht", type=Path, help="file with X [N, 6] and y [N]")
    parser.add_argument("--draws", type=int, default=5000, help="of each of 4 chains (5000)")
    parser.add_argument("--write", type=Path, help="folder for the chains")
    parser.add_argument("--read", type=Path, help="folder with chains, which are not run then")
    options = parser.parse_args()
    host = hosts.load(options.host)
    missed = []
    networks = options.host == "numpyro" or options.read is not None
    for case in cases(options.yacht, networks):
        if options.only not in case.name:
            continue
        start = time.perf_counter()
        reference = case.read(options.read) if options.read else None
        comparison = compared(host, case, options.draws, reference)
        if options.write:
            comparison.inference_data["NUTS"].to_netcdf(options.write / case.file)
        print(f"\n## {case.name}\n{comparison}\n({time.perf_counter() - start:.0f} s)", flush=True)
        missed += failures(case, comparison)
    print("\n".join(missed))
    if options.check and missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
