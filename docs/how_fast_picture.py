"""The picture of docs/how_fast.md: time by batch, width and rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

SIZES = ("batch", "width", "rows")
STYLES = {"Pyro": ("#2171b5", "o-"), "NumPyro": ("#d94801", "s-")}


def picture(speeds: Iterable[dict[str, Any]], path: Path) -> None:
    """Curves of each host, and of the port as it was beside it, on logarithmic axes.

    Args:
        speeds: what benchmarks/net_speed.py wrote, with the host of each.
        path: of the file.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(SIZES), figsize=(9, 3.2), layout="constrained")
    for panel in panels:
        panel.set(xscale="log", yscale="log")
        panel.grid(color="0.9")
    for found in speeds:
        for growth in found["growths"]:
            panel = panels[SIZES.index(growth["size"])]
            _draw(panel, found["host"], growth)
    panels[0].set_ylabel("ms of the processor")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)


def _draw(panel: Any, host: str, growth: dict[str, Any]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    colour, style = STYLES[host]
    ours = growth["name"] == host
    label = host if ours else f"{growth['name']}, beside {host}"
    milliseconds = [1e3 * value for value in growth["seconds"]]
    if not ours:
        style = style.replace("-", ":")
    panel.plot(growth["sizes"], milliseconds, style, color=colour, ms=4, label=label)
    panel.set_title(growth["what"].replace(", full covariance", ""), fontsize=9)
    panel.set_xlabel(growth["size"])
    panel.set_xticks(growth["sizes"], map(str, growth["sizes"]), minor=False)
    panel.xaxis.minorticks_off()
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
