"""Loading a definition out of somebody's script or notebook, with what it needs and nothing else.

A script trains, plots and downloads as it is imported, and asks for packages that its model does
not use. So only the statements are run that a name is made of: its definition, the definitions and
imports that this one refers to, and so on.
"""

from __future__ import annotations

import ast
import builtins
import json
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def load(file: Path, names: Iterable[str], given: Mapping[str, Any] | None = None) -> list[Any]:
    """The objects that these names stand for.

    Args:
        file: a script, or a notebook (``.ipynb``).
        names: of definitions, the first one in the file where there are several; ``outer.inner``
            for a function that another one defines.
        given: values for names that are not to be looked up in the file, such as a data set.

    Raises:
        LookupError: if the file does not define a name that is needed.
    """
    statements = ast.parse(_text(file)).body
    namespace = {"__name__": file.stem, "__file__": str(file), **(given or {})}
    chosen: dict[int, ast.stmt] = {}
    for name in names:
        _choose(name, statements, len(statements), chosen, set(namespace), first=True)
    program = ast.Module([chosen[place] for place in sorted(chosen)], [])
    with _importing_beside(file):
        exec(compile(program, str(file), "exec"), namespace)
    return [namespace[name.rpartition(".")[2]] for name in names]


def _text(file: Path) -> str:
    """The source of a script, or that of all cells of a notebook without its magic commands."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def _choose(
    name: str,
    statements: list[ast.stmt],
    before: int,
    chosen: dict[int, ast.stmt],
    given: set[str],
    first: bool = False,
) -> None:
    """Add what defines a name, and what that refers to."""
    if name in given or hasattr(builtins, name):
        return
    outer, _, inner = name.rpartition(".")
    places = [place for place, one in enumerate(statements) if (outer or inner) in _bound(one)]
    if not places:
        raise LookupError(f"nothing defines {name}")
    earlier = [place for place in places if place < before]
    place = places[0] if first or not earlier else earlier[-1]
    if not outer and place in chosen:
        return
    statement = _inner(statements[place], inner) if outer else statements[place]
    # Two functions of one outer function are two statements at one place: they stand side by side.
    kept = ast.If(ast.Constant(True), [*_body(chosen.get(place)), statement], [])
    chosen[place] = ast.fix_missing_locations(kept) if outer else statement
    for other in _needed(statement):
        _choose(other, statements, place, chosen, given)


def _body(statement: ast.stmt | None) -> list[ast.stmt]:
    return statement.body if isinstance(statement, ast.If) else []


def _inner(outer: ast.stmt, name: str) -> ast.stmt:
    found = [one for one in ast.walk(outer) if isinstance(one, ast.stmt) and name in _bound(one)]
    if not found:
        raise LookupError(f"nothing in {getattr(outer, 'name', 'it')} defines {name}")
    return found[0]


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value to."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    targets = getattr(statement, "targets", [])
    parts = [part for target in targets for part in ast.walk(target)]
    return {one.id for one in parts if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _needed(statement: ast.stmt) -> set[str]:
    """The names of the module that a statement refers to."""
    table = symtable.symtable(ast.unparse(statement), "<statement>", "exec")
    found = {one.get_name() for one in table.get_symbols() if one.is_referenced()}
    inner = list(table.get_children())
    while inner:
        scope = inner.pop()
        found |= {one.get_name() for one in scope.get_symbols() if one.is_global()}
        inner += scope.get_children()
    return found - _bound(statement) if _is_definition(statement) else found


def _is_definition(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.ClassDef)


@contextmanager
def _importing_beside(file: Path) -> Iterator[None]:
    """With the modules of the file's folder, which are forgotten afterwards: names are common."""
    folder, before = str(file.parent.resolve()), set(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin and Path(origin).parent == Path(folder):
                del sys.modules[name]
