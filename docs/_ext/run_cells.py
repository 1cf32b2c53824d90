"""Run fragments of a framework cell by cell: FILE FOLDER [FILE FOLDER ...] [--full] [--workers=2].

What a cell prints and draws is written into the fragment's folder. Every fragment runs in a fork of
a process that has imported what they need, with the other framework hidden; without ``--full`` as
a draft, of which drafts.py tells.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

HOSTS = {"pyro": "Pyro", "numpyro": "NumPyro"}
MARK = "# %% "
LATER = {  # what most fragments let the packages import when they are used
    "pyro": ("array_api_compat.torch", "arviz", "sympy", "torch._dynamo"),
    "numpyro": ("array_api_compat.numpy", "arviz", "jax.experimental.multihost_utils"),
}
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


def run(code: str, start: int, file: str, namespace: dict[str, object], full: bool) -> str:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree = ast.increment_lineno(ast.parse(code, file), start)
    if not full:
        from drafts import Briefly  # beside this file, which docs/cells.py reads too

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


def host_of(file: Path) -> str:
    """The framework of a file, by its name."""
    return file.stem.rpartition("_")[2]


def hide(host: str, source: str) -> None:
    """Leave only this framework, and the further packages that a source names, to be imported."""
    if host in HOSTS:
        from alone import Without, leave_alone

        leave_alone(host, source)
        for name in [*sys.modules]:
            if name.partition(".")[0] in Without.missing:
                del sys.modules[name]


def imported(source: str) -> list[str]:
    """What a file imports, and names of modules that may be modules themselves."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def import_for(files: list[Path]) -> None:
    """Import what files of one framework do; the framework itself finds no further package."""
    sources, host = [file.read_text(encoding="utf-8") for file in files], host_of(files[0])
    modules = {module for source in sources for module in imported(source)}
    for named in ("", "\n".join(sources)):
        hide(host, named)
        for module in (*sorted(modules), *(LATER[host] if host in modules else ())):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
    gc.freeze()


def run_file(slots: Any, file: Path, folder: Path, full: bool) -> None:
    """Run a file in one namespace; a cell that fails ends the process with its traceback."""
    source, results = file.read_text(encoding="utf-8"), {}
    namespace: dict[str, object] = {"__name__": "__main__"}
    with slots, tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        hide(host_of(file), source)
        for name, (start, code) in cells(source).items():
            text = run(code, start, str(file), namespace, full)
            drawn = pictures(folder, name)
            results[name] = {"code": code.strip(), "text": text, "pictures": drawn}
    (folder / "cells.json").write_text(json.dumps(results), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run every file in a fork, so many at once; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(arguments)
    files, folders = options.paths[::2], options.paths[1::2]
    warnings.filterwarnings("ignore", module="arviz|tqdm")
    fork = multiprocessing.get_context("fork")
    slots = fork.Semaphore(options.workers)
    with contextlib.ExitStack() as stack:
        import_for(files)
        if not options.full:
            from drafts import by_numpy

            stack.enter_context(by_numpy())
        forks = [
            fork.Process(target=run_file, args=(slots, file, folder, options.full))
            for file, folder in zip(files, folders, strict=True)
        ]
        for each in forks:
            each.start()
        for each in forks:
            each.join()
    return sum(each.exitcode != 0 for each in forks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
