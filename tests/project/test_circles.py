"""No module imports for its types alone what imports it."""

import ast
from pathlib import Path

from tests.project.counts import ROOT, SOURCE, files, parsed


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(nodes, modules) -> set[str]:
    """The modules of the source that some import statements name."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= names or {node.module} & modules
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
    return found


def graphs() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What each module imports in all, and what for its types alone."""
    trees = {module_of(path): parsed(path) for path in files(ROOT, SOURCE)}
    modules, every, for_types = {*trees}, {}, {}
    for module, tree in trees.items():
        nodes = list(ast.walk(tree))
        blocks = [
            node
            for node in nodes
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ]
        for_types[module] = imported([node for block in blocks for node in block.body], modules)
        every[module] = imported(nodes, modules)
    return every, for_types


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    """The modules that one imports, directly or not."""
    found, left = set(), [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found


def test_no_import_for_types_closes_a_circle():
    every, for_types = graphs()
    circles = [
        f"{module} imports {other} for its types, which imports it"
        for module, others in for_types.items()
        for other in others
        if module in reached(other, every)
    ]
    assert not circles, circles
