"""Tables of the page on variance back-propagation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from how_fast import table

# Table 1 of Haussmann et al. 2019: test log-likelihood of VBP, mean and standard error.
PAPER = dict(boston=(-2.59, 0.03), concrete=(-3.15, 0.02), energy=(-1.11, 0.07))
PAPER |= dict(kin8nm=(1.04, 0.01), naval=(5.79, 0.07), power=(-2.85, 0.01))
PAPER |= dict(protein=(-2.92, 0.00), wine=(-0.96, 0.01), yacht=(-1.54, 0.06))
Reader = Callable[[str], dict[str, Any]]


def regressions(read: Reader) -> str:
    """Test log-likelihoods beside those of the paper."""
    rows = []
    for name, found in sorted(read("uci_vbp").items()):
        score, (mean, error) = found["vbp"]["test_log_likelihood"], PAPER[name]
        far = (score["mean"] - mean) / (score["standard_error"] ** 2 + error**2) ** 0.5
        rows.append(
            [
                name,
                str(len(score["per_split"])),
                str(found["vbp"]["epochs"]),
                _uncertain(score),
                f"{mean:.2f} ± {error:.2f}",
                f"{far:+.1f}",
            ]
        )
    head = ["set", "splits", "epochs", "here", "paper", "difference / standard error"]
    return table(head, rows)


def _uncertain(score: dict[str, Any]) -> str:
    return f"{score['mean']:.3f} ± {score['standard_error']:.3f}"


def digits(read: Reader) -> str:
    """Test errors of the networks on digits."""
    rows = [
        [
            net,
            method,
            f"{found['error']:.2%}",
            f"{found['log_likelihood']:.4f}",
            f"{found['calibration_error']:.4f}",
            f"{1e3 * found['seconds_per_step']:.0f}",
        ]
        for net, methods in read("mnist_vbp").items()
        for method, found in methods.items()
    ]
    head = ["network", "trained and predicted by", "test error", "log-likelihood"]
    return table([*head, "calibration error", "ms of a step"], rows)


TABLES = {"vbp, regressions": regressions, "vbp, digits": digits}
