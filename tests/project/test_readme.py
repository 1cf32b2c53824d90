"""Every python block of the README and of the contributors' guide runs, in order."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<tag>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```\s*$", re.M | re.S
)


def fences(document: Path) -> list[tuple[str, str]]:
    """The fenced blocks of `document` as (tag, code), the code on the lines where it stands."""
    text = document.read_text(encoding="utf-8")
    return [
        (match["tag"].strip(), "\n" * text.count("\n", 0, match.start("body")) + dedented(match))
        for match in FENCE.finditer(text)
    ]


def dedented(match: re.Match[str]) -> str:
    return textwrap.dedent(match["body"])


def python_blocks(document: Path) -> list[str]:
    return [code for tag, code in fences(document) if tag == "python"]


def run_in_order(blocks: list[str], filename: str, namespace: dict[str, object]) -> None:
    for code in blocks:
        exec(compile(code, filename, "exec"), namespace)


@pytest.fixture
def fresh_module(monkeypatch):
    """A new module, registered in sys.modules because dataclasses and pickle look it up there."""
    module = types.ModuleType("readme_blocks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_run(document, fresh_module, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # what a block saves stays out of the repository
    monkeypatch.setenv("MPLBACKEND", "agg")
    run_in_order(python_blocks(document), str(document), vars(fresh_module))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_block_escapes(document):
    tags = [tag for tag, _ in fences(document)]
    assert 2 * len(tags) == document.read_text(encoding="utf-8").count("```")
    assert all(tags), "a block without a language"
    assert [tag for tag in tags if re.match("py|ipy", tag, re.I) and tag != "python"] == []


def test_named_files_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = "moment_calculus|pyro_moments|numpyro_moments|guides|tests|docs"
    named = set(re.findall(rf"`((?:{rooms})/[\w/.]*)`", text))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_readme_has_python_blocks():
    assert python_blocks(ROOT / "README.md")


def test_a_failing_block_is_reported_at_its_line(tmp_path):
    document = tmp_path / "document.md"
    document.write_text(
        "# Title\n\n```python\nx = 1\n```\n\n- item\n\n  ```python\n  assert x == 2\n  ```\n"
    )
    with pytest.raises(AssertionError) as failure:
        run_in_order(python_blocks(document), str(document), {})
    assert failure.traceback[-1].lineno + 1 == 10
