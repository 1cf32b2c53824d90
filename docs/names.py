"""Write the tables of public names into the pages of the API: python docs/names.py.

A table stands between `<!-- names -->` and `<!-- end -->`: what has an entry on the page, in its
order, each with the first sentence of its docstring.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PACKAGES = ("pyro_moments", "numpyro_moments")
BLOCK = re.compile(r"^<!-- names -->\n.*?^<!-- end -->", re.M | re.S)
PARTS = re.compile(r"^## (.+)$|^\.\. (?:auto|py:)(?:function|class|exception):: \w+\.(\w+)", re.M)


def sentence(item: object) -> str:
    """The first sentence of a docstring, in Markdown."""
    text = " ".join((inspect.getdoc(item) or "").split("\n\n")[0].split())
    text = re.sub(r":\w+:`[~]?([^`]+)`", r"`\1`", text).replace("``", "`").replace("|", r"\|")
    return re.split(r"(?<=[\w)`])[.:](?: |$)", text)[0]


def table(package: str, page: str) -> str:
    """A row for each name, below the titles of the parts of the page."""
    module, rows = importlib.import_module(package), ["| | |", "| --- | --- |"]
    for title, name in PARTS.findall(page):
        if name:
            link = f"{{py:obj}}`{name} <{package}.{name}>`"
            rows.append(f"| {link} | {sentence(getattr(module, name))} |")
        elif title not in ("Effects", "Stochastic units"):
            rows.append(f"| **{title}** | |")
    return "\n".join(rows)


def written(package: str, page: str) -> str:
    """A page with its table made anew."""
    return BLOCK.sub(lambda _: f"<!-- names -->\n\n{table(package, page)}\n\n<!-- end -->", page)


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    for package in PACKAGES:
        page = DOCS / "api" / f"{package}.md"
        page.write_text(written(package, page.read_text("utf-8")), encoding="utf-8")
