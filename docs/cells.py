"""Write the code of fragments/ into the pages that show it: python docs/cells.py.

Between `<!-- cell: NAME CELL -->` and `<!-- end -->` stands that cell of NAME_pyro.py and of
NAME_numpyro.py, for readers of the Markdown. The site shows it with what it prints, one framework
at a time (_ext/both.py).
"""

from __future__ import annotations

import re
from pathlib import Path

from _ext.run_cells import BLOCK, HOSTS, cells

DOCS = Path(__file__).parent


def code(name: str, cell: str) -> dict[str, str]:
    """The code of a cell in each framework that has the fragment, without empty lines around it."""
    files = {host: DOCS / "fragments" / f"{name}_{host}.py" for host in HOSTS}
    return {
        HOSTS[host]: cells(file.read_text(encoding="utf-8"))[cell][1].strip()
        for host, file in files.items()
        if file.exists()
    }


def blocks(name: str, cell: str) -> str:
    """A fence for each framework, or one where their code is the same."""
    found = code(name, cell)
    if len(set(found.values())) == 1:
        found = {" and ".join(found): next(iter(found.values()))}
    return "\n\n".join(f"In {title}:\n\n```python\n{text}\n```" for title, text in found.items())


def written(text: str) -> str:
    """A page with its cells written anew."""

    def anew(found: re.Match[str]) -> str:
        first = found[0].partition("\n")[0]
        return f"{first}\n\n{blocks(*found.groups())}\n\n<!-- end -->"

    return BLOCK.sub(anew, text)


if __name__ == "__main__":
    for page in sorted(DOCS.rglob("*.md")):
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
