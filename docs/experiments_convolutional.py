"""The tables of convolutional networks, and the picture of their layers.

python docs/experiments_convolutional.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from how_fast import table

Reader = Callable[[str], dict[str, Any]]
FOLDER = Path(__file__).parent / "experiments" / "convolutional"
# Of Shekhovtsov et al. 2018, tables 2 and 3: the paper's numbers at the logits, not ours.
PAPER = {("lenet", 1e-4): (0.63, 0.03), ("lenet", 0.01): (0.69, 0.08), ("lenet", 0.1): (0.79, 0.10)}
PAPER |= {("cifar", 0.01): (0.07, 1.43)}
# Its standard deviations of the nine convolutions of table 3.
PAPER_LAYERS = (1.00, 0.59, 0.37, 0.35, 0.26, 0.17, 0.11, 0.08, 0.07)
NAMES = {"lenet": "LeNet", "cifar": "CIFAR net"}


def rows_of(read: Reader) -> list[dict[str, Any]]:
    """The rows of both networks."""
    return [row for name in NAMES for row in read(f"convolutional/{name}")["rows"]]


def uncertainty(row: dict[str, Any]) -> str:
    """What is random."""
    if row["kind"] == "noisy images":
        return f"images, variance {row['variance']:g}"
    return f"weights, sd {row['variance'] ** 0.5:g}"


def logits(read: Reader) -> str:
    """Standard deviations and means of the logits."""
    lines = []
    for row in rows_of(read):
        found = row["layers"][-1]
        diagonal, backward = found["diagonal"], found["backward"]
        paper = PAPER.get((row["net"], row["variance"])) if "images" in row["kind"] else None
        lines.append(
            [
                f"{NAMES[row['net']]}, {row['test_accuracy']:.1%}",
                uncertainty(row),
                f"{diagonal['sd']:.3f}",
                f"{backward['sd']:.3f}",
                f"{backward['mean']:.3f}",
                f"{paper[0]:.2f}, {paper[1]:.2f}" if paper else "–",
                str(row["passes"]),
            ]
        )
    head = ["network, test accuracy", "random", "sd / drawn sd, diagonal", "backward"]
    return table([*head, "error of the mean / sd", "the paper's: sd, mean", "draws"], lines)


def lenet_layers(read: Reader) -> str:
    """Standard deviations of every layer of LeNet: diagonal / backward."""
    rows = [row for row in rows_of(read) if row["net"] == "lenet"]
    layers = [part["layer"] for part in rows[0]["layers"]]
    lines = [[uncertainty(row), *map(both, row["layers"])] for row in rows]
    return table(["random", *layers], lines)


def both(layer: dict[str, Any]) -> str:
    """A ratio by both covariances."""
    return " / ".join(f"{layer[name]['sd']:.2f}" for name in ("diagonal", "backward"))


def cifar_layers(read: Reader) -> str:
    """Standard deviations and means of every layer of the CIFAR net."""
    (row,) = (row for row in rows_of(read) if row["net"] == "cifar")
    paper = iter(PAPER_LAYERS)
    lines = []
    for layer in row["layers"]:
        sds = (f"{layer[name]['sd']:.3f}" for name in ("diagonal", "backward"))
        of_paper = f"{next(paper):.2f}" if layer["layer"].startswith("convolution") else ""
        mean = f"{layer['backward']['mean']:.2f}"
        lines.append([layer["layer"], *sds, of_paper, mean])
    head = ["layer", "sd / drawn sd, diagonal", "backward", "the paper's, diagonal"]
    return table([*head, "error of the mean / sd"], lines)


def strided(read: Reader) -> str:
    """Test errors and calibration of the strided LeNet."""
    lines = []
    for name, found in read("convolutional/mnist_lenet").items():
        for kind, part in found.items():
            if kind == "seconds_per_step":
                continue
            lines.append(
                [
                    name,
                    kind,
                    f"{part['error']:.2%}",
                    f"{part['log_likelihood']:.4f}",
                    f"{part['calibration_error']:.4f}",
                    f"{1e3 * found['seconds_per_step']:.0f}",
                ]
            )
    head = ["trained by", "predicted by", "test error", "log-likelihood", "calibration error"]
    return table([*head, "ms of a step"], lines)


TABLES = {
    "convolutional, logits": logits,
    "convolutional, LeNet by layer": lenet_layers,
    "convolutional, CIFAR by layer": cifar_layers,
    "convolutional, strided LeNet": strided,
}


def picture(read: Reader) -> Any:
    """Standard deviations over the drawn ones, by layer."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for panel, name in zip(panels, NAMES, strict=True):
        rows = [r for r in rows_of(read) if r["net"] == name and r["kind"] == "noisy images"]
        for place, row in enumerate(rows):
            for covariance, style in (("diagonal", "o--"), ("backward", "o-")):
                sds = [layer[covariance]["sd"] for layer in row["layers"]]
                label = f"{covariance}, variance {row['variance']:g}"
                panel.plot(range(1, len(sds) + 1), sds, style, color=f"C{place}", label=label)
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set(title=NAMES[name], xlabel="layer", yscale="log")
        ticks = (0.6, 0.7, 0.8, 0.9, 1) if name == "lenet" else (0.002, 0.01, 0.1, 1)
        panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
        panel.legend(fontsize="x-small")
    panels[0].set_ylabel("sd / drawn sd")
    return figure


def stored(name: str) -> dict[str, Any]:
    """One file of results."""
    return json.loads((FOLDER.parent / f"{name}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    picture(stored).savefig(FOLDER / "layers.png", dpi=110)
