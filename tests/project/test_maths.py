"""The page of formulas names modules and tests that exist."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "maths.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/\S+?\.py)::(\w+)`", PAGE)
    assert len(named) == PAGE.count("`tests/") > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.M)
    ]
    assert missing == []


def test_every_module_that_is_named_exists():
    named = re.findall(r"`((?:moment_calculus|moment_guides|moment_inference)\.[\w.]+)`", PAGE)
    assert len(named) > 20
    assert [name for name in named if importlib.util.find_spec(name) is None] == []


def test_every_section_names_a_test():
    """But the first lines, which say what the letters mean."""
    sections = PAGE.split("\n## ")[1:]
    assert [text.split("\n")[0] for text in sections if "`tests/" not in text] == []
