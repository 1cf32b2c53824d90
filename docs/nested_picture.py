"""Draw the picture of docs/nested_inference.md, of what benchmarks/nested_pictures.py wrote.

python docs/nested_picture.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
CURVES = DOCS / "experiments" / "pictures" / "nested.json"
PICTURE = DOCS / "nested_inference.png"
OURS, KNOWN, OTHER = "#d94801", "0.15", "#2171b5"


def main() -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    curves = json.loads(CURVES.read_text())
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    _spread(panels[0], curves["spread of schools"])
    _counts(panels[1], curves["spread of counts"])
    _rate(panels[2], curves["rate of counts"])
    for panel in panels:
        panel.legend(frameon=False, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=110)


def _spread(panel: Any, found: dict[str, Any]) -> None:
    width = found["edges"][1] - found["edges"][0]
    heights = [share / width for share in found["NUTS"]]
    panel.stairs(heights, found["edges"], fill=True, color="0.85", label="NUTS, 4000 draws")
    panel.plot(found["points"], found["mean field"], ":", color=OTHER, label="mean field")
    _beside(panel, found, "exact")
    panel.set(title="spread of eight schools", xlim=(0, 25), ylim=(0, 0.2), yticks=[])


def _counts(panel: Any, found: dict[str, Any]) -> None:
    panel.plot(found["points"], found["ELBO alone"], ":", color=OTHER, label="ELBO alone")
    _beside(panel, found, "reference")
    panel.set(title="spread of 320 groups of counts", ylim=(0, None), yticks=[])


def _beside(panel: Any, found: dict[str, Any], known: str) -> None:
    panel.plot(found["points"], found[known], color=KNOWN, lw=3, alpha=0.4, label=known)
    panel.plot(found["points"], found["nested"], color=OURS, lw=1.2, label="nested")


def _rate(panel: Any, found: dict[str, Any]) -> None:
    x, (low, median, high) = found["x"], found["nested"]
    panel.plot(x, found["counts"], ".", color="0.6", ms=4, label="counts")
    panel.fill_between(x, low, high, color=OURS, alpha=0.25, lw=0)
    panel.plot(x, median, color=OURS, label="nested, 90 %")
    for number, line in enumerate(found["NUTS"]):
        panel.plot(x, line, "--", color=KNOWN, lw=0.9, label=None if number else "NUTS, 90 %")
    panel.set(title="rate by a Gaussian process", xlim=(-1, 1), ylim=(0, None), xticks=[-1, 0, 1])


if __name__ == "__main__":
    main()
