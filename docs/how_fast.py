"""Write docs/how_fast.md and its picture: how fast networks are in closed form.

python docs/how_fast.py

Reads what benchmarks/net_speed.py, time_to_accuracy.py and step_time.py wrote into
docs/experiments/how_fast; the page says how.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from how_fast_texts import (
    ACCURACY,
    ACTIVATIONS,
    AGAIN,
    CLASSIFIER,
    GROWTH,
    HEAD,
    SIZES,
    UPDATES,
)

PAGE = Path(__file__).with_suffix(".md")
FOLDER = PAGE.parent / "experiments" / "how_fast"
HOSTS = {"pyro": "Pyro", "numpyro": "NumPyro"}
LARGE = "784-400-400-10"  # of step_time.py
LIMIT, LARGEST = "both", 1.25  # of step_time.py, too


def read(folder: Path, kind: str) -> list[dict[str, Any]]:
    """What a benchmark wrote, Pyro's before NumPyro's, each with its host.

    Args:
        folder: of the JSON files.
        kind: the benchmark, with which their names begin.
    """
    return [
        json.loads(file.read_text(encoding="utf-8")) | {"host": name}
        for host, name in HOSTS.items()
        for file in sorted(folder.glob(f"{kind}_{host}*.json"), reverse=True)
    ]


def page(folder: Path = FOLDER) -> str:
    """The whole page.

    Args:
        folder: of the JSON files.
    """
    speeds = read(folder, "net_speed")
    parts = [
        HEAD,
        machines(speeds),
        UPDATES,
        updates(speeds),
        SIZES,
        sizes(speeds),
        GROWTH,
        exponents(speeds),
        ACTIVATIONS,
        activations(speeds),
        CLASSIFIER,
        classifiers(read(folder, "step_time")),
        *accuracies(read(folder, "time_to_accuracy")),
        AGAIN,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def machines(speeds: Iterable[dict]) -> str:
    """What it was run on."""
    lines = []
    for found in speeds:
        machine = dict(found["machine"])
        processor, cores = machine.pop("processor"), machine.pop("cores")
        versions = ", ".join(f"{name} {version}" for name, version in machine.items())
        lines.append(f"- {found['host']}: {processor}, {cores} cores; {versions}")
    return "\n".join(lines)


def updates(speeds: Iterable[dict]) -> str:
    """Rows beside the host's own ELBO."""
    head = ["", "", "contender", "ms", "reference's ms", "ratio", "limit"]
    return table(head, [_update(found, row) for found in speeds for row in _beside_host(found)])


def _beside_host(found: dict) -> list[dict]:
    return [row for row in found["rows"] if _reference(row).startswith("TraceMeanField_ELBO")]


def _reference(row: dict) -> str:
    return row["reference"]["name"] if row["reference"] else ""


def _update(found: dict, row: dict) -> list[str]:
    ours, other = (row[side][row["by"]] for side in ("ours", "reference"))
    cells = [found["host"], row["what"], row["ours"]["name"]]
    if row["in_seconds"]:
        limit = f"{row['limit']:g} s"
        return [*cells, judged(1e3 * ours, 1e3 * row["limit"], ".0f"), ms(other), "", limit]
    ratio = judged(row["ratio"], row["limit"])
    return [*cells, ms(ours), ms(other), ratio, _limit(row["limit"])]


def sizes(speeds: Iterable[dict]) -> str:
    """Rows beside the port, by size."""
    head = ["", "", "ms", "ratio of minima", "ratio of medians", "limit", "MiB", "the port's MiB"]
    rows = [
        _sized(found, row)
        for found in speeds
        for row in found["rows"]
        if row["ours"]["name"] == found["host"] and ", rows " not in row["what"]
    ]
    return table(head, rows)


def _sized(found: dict, row: dict) -> list[str]:
    ours, port = row["ours"], row["reference"] or {}
    ratios = [
        judged(ours[by] / port[by] if port else None, row["limit"] if by == row["by"] else None)
        for by in ("minimum", "median")
    ]
    what = row["what"].replace(", full covariance", "")
    memory = [_whole(part.get("mebibytes")) for part in (ours, port)]
    return [found["host"], what, ms(ours[row["by"]]), *ratios, _limit(row["limit"]), *memory]


def exponents(speeds: Iterable[dict]) -> str:
    """Of each contender."""
    rows = [
        [
            growth["what"],
            f"{growth['size']} {', '.join(map(str, growth['sizes']))}",
            _contender(found, growth),
            ", ".join(map(ms, growth["seconds"])),
            judged(growth["exponent"], growth["limit"]),
            _limit(growth["limit"]),
        ]
        for found in speeds
        for growth in found["growths"]
    ]
    return table(["", "by", "contender", "ms", "exponent", "limit"], rows)


def _contender(found: dict, growth: dict) -> str:
    name, host = growth["name"], found["host"]
    return name if name == host else f"{name}, beside {host}"


def activations(speeds: Sequence[dict]) -> str:
    """Ratios to relu by host."""
    cells: dict[str, list[str]] = {}
    limits = {}
    for found in speeds:
        for row in found["rows"]:
            if _reference(row) == "relu":
                name = row["ours"]["name"]
                cells.setdefault(name, []).append(judged(row["ratio"], row["limit"]))
                limits[name] = _limit(row["limit"])
    head = ["activation", *(found["host"] for found in speeds), "limit"]
    return table(head, [[name, *ratios, limits[name]] for name, ratios in cells.items()])


def classifiers(found: Iterable[dict]) -> str:
    """Rows of step_time.py for its large network, beside the plain one and the limit of both."""
    rows = [
        [times["host"], title, name, ms(seconds[name]), *_to_plain_and_limit(times, title, name)]
        for times in found
        for title, seconds in times.items()
        if title.startswith(LARGE)
        for name in seconds
        if name.startswith("DeterministicELBO")
    ]
    return table(["", "", "contender", "ms", "to plain", "to limit", "limit"], rows)


def _to_plain_and_limit(times: dict, title: str, name: str) -> list[str]:
    seconds, bound = times[title], times[f"limit, {title}"]
    to_plain = f"{seconds[name] / next(iter(seconds.values())):.2f}"
    limit = LARGEST if name in bound else None
    return [to_plain, judged(seconds[name] / bound[LIMIT], limit), _limit(limit)]


def accuracies(found: Iterable[dict]) -> Iterator[str]:
    """A head and a table for each protocol."""
    protocols: dict[str, list[dict]] = {}
    for one in found:
        protocols.setdefault(ACCURACY.format(**one), []).append(one)
    head = ["", "start", "contender", "rate", "updates", "s", "ratio", "limit"]
    for text, results in protocols.items():
        yield text
        rows = [row for result in results for row in _accuracy(result)]
        yield table([*head, "with compiling: s", "ratio"], rows)


def _accuracy(result: dict) -> Iterator[list[str]]:
    reference, *ours = result["contenders"].values()
    best = min((one["ratio"] for one in ours if one["reached"]), default=None)
    for name, found in result["contenders"].items():
        cells = [result["host"], f"{result['start']:g}", name, f"{found['rate']:g}"]
        cells += [f"{found['updates']:.0f}", f"{found['seconds']:.3g}"]
        whole = f"{found['with_compiling']:.3g}"
        if not found["reached"]:
            yield [*cells, "not reached", "", whole, ""]
            continue
        limit = result["limit"] if found["ratio"] == best and found is not reference else None
        sign = "" if reference["reached"] else "≤ "
        both = judged(found["ratio"], limit), judged(found["ratio_with_compiling"])
        yield [*cells, sign + both[0], _limit(limit), whole, sign + both[1]]


def judged(value: float | None, limit: float | None = None, style: str = ".2f") -> str:
    """A number, bold above its limit."""
    if value is None:
        return "–"
    return f"**{value:{style}}**" if limit is not None and value > limit else f"{value:{style}}"


def ms(seconds: float) -> str:
    """Milliseconds of three digits, without exponents."""
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _limit(limit: float | None) -> str:
    return "" if limit is None else f"{limit:g}"


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown.

    Args:
        head: names of the columns.
        rows: cells.
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Write the page and its picture."""
    from how_fast_picture import picture

    PAGE.write_text(page(), encoding="utf-8")
    picture(read(FOLDER, "net_speed"), PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
