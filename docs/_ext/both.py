"""Show a cell of fragments/NAME_pyro.py and _numpyro.py, with its output, one framework at a time.

A line `# %% CELL` begins a cell. A page has its code between `<!-- cell: NAME CELL -->` and
`<!-- end -->`, for readers of the Markdown. On the site the page has one switch below its title,
the tabs of an empty set, and site.css hides what is not chosen.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from kept_cells import outputs, run_missing
from run_cells import BLOCK, HOSTS, MARK
from sphinx.util.docutils import SphinxDirective

TITLE = re.compile(r"\A# .+\n", re.M)
TAB = "````{{tab-item}} {}\n:sync: {}\n\n% nothing\n````\n"
TABS = "".join(TAB.format(title, host) for host, title in HOSTS.items())
SWITCH = f"\n`````{{tab-set}}\n:class: switch\n\n{TABS}`````\n"


def block(kind: str, argument: str, options: str, text: str) -> str:
    """A directive in Markdown."""
    return f"```````{{{kind}}} {argument}\n{options}\n{text}\n```````\n"


def fragments(env: Any, name: str) -> dict[str, Path]:
    """The files of a fragment, by framework."""
    files = {host: Path(env.srcdir) / "fragments" / f"{name}_{host}.py" for host in HOSTS}
    return {host: file for host, file in files.items() if file.exists()}


class Both(SphinxDirective):
    """Code and output of one cell, a division for each framework."""

    required_arguments = 2
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The divisions, of which a reader sees the one that the switch of the page chooses."""
        name, cell = self.arguments
        files = fragments(self.env, name)
        if not files:
            raise self.error(f"no fragments/{name}_*.py")
        parts = [self._division(host, file, cell) for host, file in files.items()]
        return self.parse_text_to_nodes("".join(parts))

    def _division(self, host: str, file: Path, cell: str) -> str:
        self.env.note_dependency(str(file))
        folder, cells = outputs(file, Path(self.env.srcdir) / "_build")
        if cell not in cells:
            raise self.error(f"{file} has no cell '{MARK}{cell}'")
        result, page = cells[cell], Path(self.env.doc2path(self.env.docname))
        parts = [block("code-block", "python", "", result["code"])]
        if result["text"]:
            parts.append(block("code-block", "text", ":class: output\n", result["text"]))
        for picture in result["pictures"]:
            file = os.path.relpath(folder / picture, page.parent)
            parts.append(block("image", file, f":alt: {cell}\n", ""))
        return f"````````{{div}} only-{host}\n\n{''.join(parts)}````````\n"


def with_directives(text: str) -> str:
    """A page whose cells are directives, below a switch of the framework."""
    text, count = BLOCK.subn(r"```{both} \1 \2\n```", text)
    return TITLE.sub(lambda title: title[0] + SWITCH, text) if count else text


def read(app: Any, docname: str, content: list[str]) -> None:
    """Put the directives in the place of the code that a page has for readers of the Markdown."""
    content[0] = with_directives(content[0])


def run_cells(app: Any, env: Any, docnames: list[str]) -> None:
    """Run the fragments of the pages that will be read, before several processes read them."""
    texts = [Path(env.doc2path(name)).read_text(encoding="utf-8") for name in docnames]
    names = sorted({name for text in texts for name, _ in BLOCK.findall(text)})
    files = [file for name in names for file in fragments(env, name).values()]
    run_missing(files, Path(env.srcdir) / "_build", app.parallel)


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("both", Both)
    app.connect("env-before-read-docs", run_cells)
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
