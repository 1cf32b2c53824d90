"""Run a fragment cell by cell and write what every cell prints and draws: FILE FOLDER [--full].

Without ``--full`` training and chains have a tenth of the steps that are written.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
import warnings
from pathlib import Path

HOSTS = {"pyro": "Pyro", "numpyro": "NumPyro"}
MARK = "# %% "
BLOCK = re.compile(r"^<!-- cell: (\w+) (.+?) -->\n.*?^<!-- end -->", re.M | re.S)  # of a page


def cells(text: str) -> dict[str, tuple[int, str]]:
    """The line on which every cell begins, and its code."""
    found: dict[str, list[str]] = {}
    starts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(MARK):
            name = line.removeprefix(MARK).strip()
            if name in found:
                raise ValueError(f"line {number}: a second cell '{name}'")
            starts[name], found[name] = number, []
        elif found:
            found[name].append(line)
    return {name: (starts[name], "\n".join(lines).rstrip()) for name, lines in found.items()}


COUNTS = {"steps", "epochs", "num_samples", "num_warmup", "warmup_steps"}
FEWEST = 5  # below which a count stays as it is


class Briefly(ast.NodeTransformer):
    """A tenth of the steps, draws and epochs that are written as numbers."""

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        """An argument of a call."""
        self.generic_visit(node)
        return ast.keyword(node.arg, self._fewer(node.arg, node.value))

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        """Options that several calls share."""
        self.generic_visit(node)
        names = [getattr(key, "value", None) for key in node.keys]
        values = [self._fewer(name, value) for name, value in zip(names, node.values, strict=True)]
        return ast.Dict(node.keys, values)

    def _fewer(self, name: object, value: ast.expr) -> ast.expr:
        if name in COUNTS and isinstance(value, ast.Constant) and isinstance(value.value, int):
            fewer = max(value.value // 10, min(value.value, FEWEST))
            return ast.copy_location(ast.Constant(fewer), value)
        return value


def run(code: str, start: int, file: str, namespace: dict[str, object], full: bool) -> str:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree = ast.increment_lineno(ast.parse(code, file), start)
    if not full:
        tree = ast.fix_missing_locations(Briefly().visit(tree))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, file, "exec"), namespace)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), file, "eval"), namespace)
        if value is not None:
            print(value)
    return printed.getvalue().rstrip()


def pictures(folder: Path, name: str) -> list[str]:
    """Save and close the figures that a cell has drawn, if it loaded matplotlib at all."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    saved = []
    for number in pyplot.get_fignums() if pyplot else ():
        saved.append(f"{folder.name}-{name.replace(' ', '-')}-{number}.png")
        pyplot.figure(number).savefig(folder / saved[-1], dpi=110, bbox_inches="tight")
    if pyplot:
        pyplot.close("all")
    return saved


def main(file: str, folder: str, *options: str) -> None:
    """Run the file in one namespace; a cell that fails ends the process with its traceback."""
    warnings.filterwarnings("ignore", module="arviz|tqdm")
    namespace: dict[str, object] = {"__name__": "__main__"}
    results, source = {}, Path(file).read_text(encoding="utf-8")
    if (host := Path(file).stem.rpartition("_")[2]) in HOSTS:
        from alone import leave_alone  # beside this file, which docs/cells.py reads too

        leave_alone(host, source)
    for name, (start, code) in cells(source).items():
        text = run(code, start, file, namespace, full="--full" in options)
        results[name] = {
            "code": code.strip(),
            "text": text,
            "pictures": pictures(Path(folder), name),
        }
    (Path(folder) / "cells.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
