"""Tables of the pages on accuracy and of benchmarks, and the results of the front page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from experiments_peers import cell
from how_fast import table

Reader = Callable[[str], dict[str, Any]]
# DVI of Wu et al. 2019, their table 1: test log-likelihood. The paper's numbers, not ours.
PAPER = dict(boston="-2.41 ± 0.02", concrete="-3.06 ± 0.01", energy="-1.01 ± 0.06")
PAPER |= dict(kin8nm="1.13", naval="6.29 ± 0.04", power="-2.80", protein="-2.85 ± 0.01")
PAPER |= dict(wine="-0.90 ± 0.01", yacht="-0.47 ± 0.03")
HOSTS = {"pyro": "Pyro", "numpyro": "NumPyro"}
# On the front page: the name of a contender among regressions, and among networks.
FRONT = {
    "this library": ("this library, NumPyro", "this library, NumPyro"),
    "NUTS": ("NUTS, NumPyro", "NUTS, NumPyro"),
    "`AutoNormal`, sampled ELBO": ("AutoNormal, NumPyro", "AutoNormal, NumPyro"),
    "TyXe": ("", "TyXe"),
    "laplace-torch": ("", "laplace-torch"),
    "deep ensemble of five": ("", "deep ensemble of five, torch"),
}


def _uncertain(part: dict[str, float], digits: str = ".2f") -> str:
    return f"{part['mean']:{digits}} ± {part['standard_error']:{digits}}"


def uci(read: Reader) -> str:
    """Test log-likelihood and error of each set, beside the paper."""
    rows = []
    for name, found in read("uci_dvi").items():
        score, rmse = found["test_log_likelihood"], found["rmse"]
        digits = ".5f" if rmse["mean"] < 0.01 else ".3f" if rmse["mean"] < 0.1 else ".2f"
        cells = [_uncertain(score), _uncertain(rmse, digits), PAPER[name]]
        rows.append([name, str(len(score["per_split"])), *cells])
    return table(["set", "splits", "test log-likelihood", "RMSE", "DVI in the paper"], rows)


def twelve_models(read: Reader) -> str:
    """The ELBO of each model in closed form and by draws, of both frameworks."""
    found = read("twelve_models")
    rows = []
    for name in found["pyro"]:
        cells = [name]
        for host in HOSTS:
            row = found[host][name]
            drawn = f"{row['sampled']:.2f} ± {row['standard_error']:.2f}"
            cells += [f"{row['elbo']:.2f}", drawn]
        rows.append(cells)
    titles = [f"{title}, {by}" for title in HOSTS.values() for by in ("closed form", "by draws")]
    return table(["model", *titles], rows)


def measured(read: Reader, name: str) -> str:
    """A table that is kept as its command printed it."""
    found = read("measured")[name]
    rows = ([part if isinstance(part, str) else f"{part:.4g}" for part in r] for r in found["rows"])
    return table(found["head"], rows)


def front(read: Reader) -> str:
    """Standard deviations of a regression over those of NUTS, and log-likelihoods of networks."""
    regressions, sets = read("peers")["tasks"]["regression"], read("peers_uci")["sets"]
    exact = np.asarray([part["deviations"] for part in regressions["NUTS, NumPyro"]])
    most = max(len(one["seconds"]) for found in sets.values() for one in found.values())
    rows = []
    for title, (regression, network) in FRONT.items():
        parts = regressions.get(regression, [])
        ratios = np.asarray([part["deviations"] for part in parts]) / exact if parts else None
        within = "–" if ratios is None else f"{ratios.min():.2f}–{ratios.max():.2f}"
        rows.append([title, within, *(cell(found[network], most) for found in sets.values())])
    return table(["", "sd of weights / NUTS'", *sets], rows)


def held_draws(read: Reader) -> str:
    """Fits with held draws beside NUTS: means, standard deviations, seconds, error stated."""
    rows = []
    for name, found in read("held_draws").items():
        ratios = found["ratio of deviations"]
        rows.append(
            [
                name.replace("_", " "),
                str(found["draws"] or "–"),
                f"{found['error']:.4f}" if found["draws"] else "–",
                f"{max(found['moved']):.4f}" if found["draws"] else "–",
                f"{max(map(abs, found['means off by'])):.2f}",
                f"{min(ratios):.2f}–{max(ratios):.2f}",
                f"{found['seconds']:.0f}",
                f"{found['seconds of NUTS']:.0f}",
            ]
        )
    head = ["model", "draws", "error stated", "largest move", "largest difference of means"]
    return table([*head, "sd / NUTS'", "seconds", "seconds of NUTS"], rows)


def held_errors(read: Reader) -> str:
    """How often the error that a fit with held draws states covers what another set moves."""
    drawn = [found for found in read("held_draws").values() if found["draws"]]
    ratios = [move / found["error"] for found in drawn for move in found["moved"]]
    row = [len(drawn), len(ratios), sum(ratio <= 1 for ratio in ratios)]
    head = ["models with draws", "other sets", "moves within the error stated", "largest ratio"]
    return table(head, [[*map(str, row), f"{max(ratios):.2f}"]])


KEPT = ("first steps", "ordinary models", "NUTS, regressions", "NUTS, networks")
KEPT += ("attention", "recurrent cells")
TABLES: dict[str, Callable[[Reader], str]] = {
    "UCI, DVI": uci,
    "twelve models": twelve_models,
    "front page": front,
    "held draws, NUTS": held_draws,
    "held draws, errors": held_errors,
}
TABLES |= {name: partial(measured, name=name) for name in KEPT}
