"""`{both} NAME cell`: a cell of fragments/NAME_pyro.py and _numpyro.py as tabs, with its output.

A line `# %% cell` begins a cell.
"""

from __future__ import annotations

import os
from pathlib import Path

from docutils import nodes
from kept_cells import outputs
from run_cells import MARK
from sphinx.util.docutils import SphinxDirective

HOSTS = {"pyro": "Pyro", "numpyro": "NumPyro"}


def block(kind: str, argument: str, options: str, text: str) -> str:
    """A directive in Markdown."""
    return f"```````{{{kind}}} {argument}\n{options}\n{text}\n```````\n"


class Both(SphinxDirective):
    """Code and output of one cell, a tab for each framework."""

    required_arguments = 2
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The tab set, in which the choice of a reader is kept over pages."""
        name, cell = self.arguments
        tabs = [self._tab(host, name, cell) for host in HOSTS if self._file(host, name).exists()]
        if not tabs:
            raise self.error(f"no fragments/{name}_*.py")
        return self.parse_text_to_nodes(f"`````````{{tab-set}}\n{''.join(tabs)}`````````\n")

    def _file(self, host: str, name: str) -> Path:
        return Path(self.env.srcdir) / "fragments" / f"{name}_{host}.py"

    def _tab(self, host: str, name: str, cell: str) -> str:
        file = self._file(host, name)
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
        return f"````````{{tab-item}} {HOSTS[host]}\n:sync: {host}\n\n{''.join(parts)}````````\n"


def setup(app) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("both", Both)
    return {"parallel_read_safe": True}
