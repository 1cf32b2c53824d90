"""Count what a reader has to carry: ``python -m tests.project.counts [CHECKOUT]``."""

import ast
import functools
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("moment_calculus", "moment_inference", "guides", "pyro_moments", "numpyro_moments")
PACKAGES = {name: {"guides": "moment_guides"}.get(name, name) for name in SOURCE}  # by folder
FRONT_ENDS = ("pyro_moments", "numpyro_moments")
FOLDERS = {
    "source": SOURCE,
    "front ends": FRONT_ENDS,
    "tests": ("tests",),
    "benchmarks": ("benchmarks",),
}
LONG_LINE = 90
ALIKE = 6  # lines that make a duplicate
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
PRIVATE = re.compile(
    r"\b(?:torch|jax|pyro|numpyro)(?:\.\w+)*\._[a-zA-Z]"
    r"|from (?:torch|jax|pyro|numpyro)(?:\.\w+)* import _"
    r"|\bjax\.(?:core|extend|interpreters)\b|from jax import core|_PYRO_STACK"
)


def files(root: Path, names: tuple[str, ...]) -> list[Path]:
    """The Python files of some folders."""
    return sorted(file for name in names for file in (root / name).rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file, which several tests read."""
    return ast.parse(path.read_text(encoding="utf-8"))


def documented(tree: ast.AST) -> Iterator[tuple[str, ast.AST, ast.Expr]]:
    """Qualified names of modules, classes and functions, with their docstrings."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST, ast.Expr]]:
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and ast.get_docstring(node, clean=False) is not None:
            yield name, node, body[0]
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from walk(child, f"{name}.{child.name}".lstrip("."))

    return walk(tree, "")


def counted(paths: list[Path]) -> dict[str, float]:
    """Lines, docstrings, tokens and the longest function of some files."""
    kinds = ("files", "lines", "code", "logical", "docstring", "tokens", "long")
    totals = dict.fromkeys(kinds, 0)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        tree = parsed(path)
        totals["files"] += 1
        totals["lines"] += text.count("\n")
        totals["code"] += lines_of_code(path)
        totals["logical"] += sum(token.type == tokenize.NEWLINE for token in tokens)
        totals["tokens"] += sum(token.type not in LAYOUT for token in tokens)
        totals["long"] += sum(len(line) > LONG_LINE for line in text.splitlines())
        for _, _, docstring in documented(tree):
            totals["docstring"] += docstring.end_lineno - docstring.lineno + 1
    return {**totals, "longest function": max(lengths(paths).values())}


def lines_of_code(path: Path) -> int:
    """Lines of a file that are no docstring, comment, blank or import."""
    text, tree = path.read_text(encoding="utf-8"), parsed(path)
    left_out = [docstring for _, _, docstring in documented(tree)] + _imports(tree)
    numbers = {n for node in left_out for n in range(node.lineno, node.end_lineno + 1)}
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    return sum(bool(line) and line[0] != "#" and number not in numbers for number, line in lines)


def _imports(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def doors(root: Path) -> dict[str, set[str]]:
    """Names that the front ends import from other packages of the project, by module."""
    names: dict[str, set[str]] = {}
    for file in files(root, FRONT_ENDS):
        for node in _imports(parsed(file)):
            for module, name in _imported(node):
                package = module.partition(".")[0]
                if package in PACKAGES.values() and package not in FRONT_ENDS:
                    given = _exported(root, module) if name == "*" else {name}
                    names.setdefault(module, set()).update(given)
    return names


def _exported(root: Path, module: str) -> set[str]:
    """The names in the lists of a module's ``__all__``."""
    tree = parsed(root.joinpath(*module.split(".")).with_suffix(".py"))
    lists = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AugAssign) and "__all__" in ast.unparse(node)
    ]
    return {part.value for part in ast.walk(ast.List(lists)) if isinstance(part, ast.Constant)}


def _imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """Return pairs of a module and a name; the module itself where it is imported as a whole."""
    if isinstance(node, ast.Import):
        return [(alias.name, alias.name) for alias in node.names]
    return [(node.module or "", alias.name) for alias in node.names]


def members(root: Path, module: str = "moment_calculus/values/step.py", name: str = "Step") -> int:
    """Methods and annotated attributes of a class."""
    found = [node for node in ast.walk(parsed(root / module)) if _is_class(node, name)]
    kinds = ast.FunctionDef | ast.AnnAssign
    return sum(isinstance(part, kinds) for node in found for part in node.body)


def _is_class(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def containers(root: Path) -> list[str]:
    """Classes of the front ends that hold a model or program, and what it is called with."""
    found = []
    for file in files(root, FRONT_ENDS):
        classes = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.ClassDef)]
        found += [
            f"{file.relative_to(root)}: {node.name}"
            for node in classes
            if (names := _attributes(node)) & {"model", "program", "svi", "problem", "loss"}
            and names & {"args", "data", "params", "parameters", "source"}
        ]
    return found


def _attributes(node: ast.ClassDef) -> set[str]:
    """Annotated attributes of a class, and those that its methods set."""
    annotated = {part.target for part in node.body if isinstance(part, ast.AnnAssign)}
    stored = [
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
    ]
    names = [part.id for part in annotated if isinstance(part, ast.Name)]
    return {name.lstrip("_") for name in [*names, *stored]}


def lengths(paths: list[Path]) -> dict[str, int]:
    """Lines of the body of every function, without its docstring."""
    return {
        f"{path}: {node.name}": body[-1].end_lineno - body[0].lineno + 1
        for path in paths
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef)
        and (body := node.body[ast.get_docstring(node) is not None :])
    }


def private_files(root: Path) -> list[str]:
    """Files of the source that touch what torch, JAX, Pyro or NumPyro call private."""
    return [
        str(file.relative_to(root))
        for file in files(root, SOURCE)
        if any(map(PRIVATE.search, _code(file)))
    ]


def _code(file: Path) -> list[str]:
    """Lines without comments."""
    return [line.split("#")[0] for line in file.read_text(encoding="utf-8").splitlines()]


def duplicates(paths: list[Path]) -> set[tuple[Path, Path]]:
    """Pairs of files that share six lines to the letter.

    Blank lines, import statements and public docstrings do not count: both front ends carry the
    full text of what they export, and a test compares it.
    """
    places: dict[tuple[str, ...], set[Path]] = {}
    for path in paths:
        lines = _counted_lines(path.read_text(encoding="utf-8"))
        for first in range(len(lines) - ALIKE + 1):
            places.setdefault(tuple(lines[first : first + ALIKE]), set()).add(path)
    return {pair for alike in places.values() for pair in combinations(sorted(alike), 2)}


def _counted_lines(text: str) -> list[str]:
    """The lines of a file that count as duplicates."""
    tree = ast.parse(text)
    left_out: list[Any] = [*_imports(tree)]
    left_out += [docstring for name, _, docstring in documented(tree) if "_" not in _initials(name)]
    numbers = {n for node in left_out for n in range(node.lineno, node.end_lineno + 1)}
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    return [line for number, line in lines if line and number not in numbers]


def _initials(name: str) -> str:
    """First letters of the parts of a qualified name: an underscore where one is private."""
    return "".join(part[0] for part in name.split(".") if part)


def passed(root: Path, framework: str) -> dict[str, Any]:
    """How many files a step of SVI and ``compare_with_nuts`` pass; calls and hops of the step."""
    command = [sys.executable, "-m", "tests.project.passed", framework]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    counts = {name: len(part) for name, part in found.items() if isinstance(part, list)}
    return counts | {name: part for name, part in found.items() if isinstance(part, int)}


def main(root: Path) -> None:
    """Print the counts of a checkout."""
    for title, names in FOLDERS.items():
        counts = counted(files(root, names))
        counts["tokens a logical line"] = round(counts["tokens"] / counts["logical"], 2)
        counts["share of long lines"] = round(counts["long"] / counts["lines"], 4)
        print(title, counts)
    by_door = doors(root)
    count = sum(map(len, by_door.values()))
    print(f"names that the front ends import from below: {count}, from {len(by_door)} modules")
    print("members of Step:", members(root))
    held = containers(root)
    print("containers of a program:", len(held), *held, sep="\n    ")
    print("files with private names:", len(private_files(root)))
    print("pairs of files that share six lines:", len(duplicates(files(root, SOURCE))))
    for framework in ("pyro", "numpyro"):
        print(f"files that are passed in {framework}, calls and hops:", passed(root, framework))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
