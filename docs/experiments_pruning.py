"""The tables of the page of pruning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from how_fast import table

Read = Callable[[str], dict[str, Any]]
HEAD = ["prior", "log α ≥", "weights off", "log-likelihood", "accuracy, %"]


def level(prior: str, found: dict[str, Any]) -> list[str]:
    """One threshold of one network."""
    limit = found["threshold"]
    return [
        prior,
        "—" if limit is None else f"{limit:.3g}",
        f"{found['off']:.1%}",
        f"{found['log_likelihood']:.4f} ± {found['standard_error']:.4f}",
        f"{100 * found['accuracy']:.2f}",
    ]


def thresholds(read: Read) -> str:
    """Of both networks, whole and at the thresholds."""
    results = read("mnist_pruning")
    rows = [
        level(prior, found)
        for prior in ("log-uniform", "normal")
        for found in (results[prior]["whole"], *results[prior]["thresholds"])
    ]
    return table(HEAD, rows)


def chosen(read: Read) -> str:
    """Of both networks, at the threshold that the held-out images choose."""
    head = ["bytes", "bytes of what is kept", "inputs off", "hidden units", "smaller network, %"]
    rows = [
        [
            *level(prior, found := results["chosen"]),
            *(str(found[name]) for name in ("bytes_dense", "bytes_sparse", "inputs_off")),
            str(found["hidden_units"]),
            f"{100 * found['accuracy_of_smaller_network']:.2f}",
        ]
        for prior, results in read("mnist_pruning").items()
        if prior != "epochs"
    ]
    return table([*HEAD, *head], rows)


TABLES = {"pruning, thresholds": thresholds, "pruning, chosen": chosen}
