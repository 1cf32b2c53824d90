"""The house stays tidy: short files, at most 14 entries in a room."""

from pathlib import Path

import pytest

from tests.project.counts import ROOT, SOURCE, files, lengths

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
