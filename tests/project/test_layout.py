"""The house stays tidy: short files, at most 14 entries in a room, no circles."""

import ast
import importlib
import tomllib
from pathlib import Path

import pytest

from tests.project.counts import PACKAGES, ROOT, SOURCE, doors, files, lengths, parsed

LONGEST_FUNCTION = 43
FULLEST = 14
LONGEST = dict.fromkeys(SOURCE, 500) | dict.fromkeys(
    ("tests", "benchmarks", "examples", "docs"), 300
)


def rooms() -> list[Path]:
    found = [folder for name in SOURCE for folder in (ROOT / name).rglob("*") if folder.is_dir()]
    return [folder for folder in found if any(folder.rglob("*.py"))]  # git leaves empty ones


@pytest.mark.parametrize("name", LONGEST)
def test_files_are_short(name):
    long = [
        str(file.relative_to(ROOT))
        for file in (ROOT / name).rglob("*.py")
        if len(file.read_text(encoding="utf-8").splitlines()) > LONGEST[name]
    ]
    assert long == []


def test_functions_are_short():
    lines = lengths(files(ROOT, SOURCE))
    assert {name: count for name, count in lines.items() if count > LONGEST_FUNCTION} == {}


def test_rooms_are_not_crowded():
    entries = {
        str(room.relative_to(ROOT)): sum(entry.name != "__pycache__" for entry in room.iterdir())
        for room in rooms()
    }
    assert len(entries) > 20
    assert {room: count for room, count in entries.items() if count > FULLEST} == {}


def test_rooms_say_what_they_are_for():
    silent = [
        str(room.relative_to(ROOT))
        for room in rooms()
        if not (room / "__init__.py").read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []


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


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETTINGS = PROJECT["tool"]["setuptools"]


def test_all_folders_with_an_init_are_installed():
    """Under the name that each is imported by."""
    found = [
        ".".join((package, *init.parent.relative_to(ROOT / folder).parts))
        for folder, package in PACKAGES.items()
        for init in (ROOT / folder).rglob("__init__.py")
    ]
    assert sorted(SETTINGS["packages"]) == sorted(found)
    named = {package: folder for folder, package in PACKAGES.items() if folder != package}
    assert SETTINGS["package-dir"] == {"": ".", **named}


def test_the_front_ends_come_in_through_doors():
    by_door = doors(ROOT)
    assert len(by_door) <= 16, sorted(by_door)
    assert sum(map(len, by_door.values())) <= 200


def test_doors_list_what_goes_through_them():
    """In their ``__all__``; but the version, doors themselves, and the catalogue of operations."""
    by_door = doors(ROOT)
    others = {"moment_calculus.__version__", "moment_calculus.operations.catalogue", *by_door}
    for door, names in by_door.items():
        listed = {
            f"{door}.{name}" for name in getattr(importlib.import_module(door), "__all__", ())
        }
        assert {f"{door}.{name}" for name in names} <= listed | others
