"""The tables of the experiments' pages are those of their files of results."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def experiments(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import experiments

    return experiments


def test_tables_are_those_of_the_files(experiments):
    named = []
    for page in experiments.PAGES:
        text = page.read_text(encoding="utf-8")
        named += re.findall(r"<!-- table: (.+?) -->", text)
        assert text.count("<!-- table: ") == len(experiments.BLOCK.findall(text))
        assert experiments.written(text) == text, "run python docs/experiments.py"
    assert set(named) == set(experiments.TABLES)


# Pages that a command writes as a whole, from files of results or from what it computes.
WRITTEN = {
    "at_the_optimum": "benchmarks/at_the_optimum.py",
    "layers_at_the_optimum": "benchmarks/layers_at_the_optimum.py",
    "experiments/posteriordb": "benchmarks/posteriordb.py",
    "how_fast": "docs/how_fast.py",
    "models_tried": "docs/models_tried.py",
    "rule_books": "docs/rule_books.py",
}
NUMBER = re.compile(r"[^\w(]*\d[\d.,]*(?![\w-])")


def figures(text):
    """A page's tables outside of markers, a third of them figures."""
    text = re.sub(r"<!-- table: .+? -->\n.*?<!-- end -->", "", text, flags=re.S)
    for table in re.findall(r"(?:^ *\|.*\n)+", text, re.M):
        cells = [c.strip() for row in table.splitlines()[2:] for c in row.strip("| ").split("|")]
        if sum(bool(NUMBER.match(cell)) for cell in cells) > len(cells) / 3:
            yield table.splitlines()[0]


def test_every_table_of_figures_is_generated():
    pages = {str(page.relative_to(DOCS).with_suffix("")): page for page in DOCS.rglob("*.md")}
    pages |= {name: DOCS.parent / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")}
    found = {name: [*figures(page.read_text("utf-8"))] for name, page in pages.items()}
    assert {name: tables for name, tables in found.items() if tables and name not in WRITTEN} == {}
    assert [file for file in WRITTEN.values() if not (DOCS.parent / file).exists()] == []
    assert [*figures("| a | b |\n|---|---|\n| x | 1.5 |\n")] == ["| a | b |"]


def test_every_file_is_read_and_every_change_is_seen(experiments, monkeypatch):
    """Numbers of one file after the other are changed; each changes a page."""
    files = {file.stem for file in experiments.FOLDER.glob("*.json")}
    for folder in ("on_gpu", "backward", "convolutional"):
        files |= {f"{folder}/{file.stem}" for file in experiments.FOLDER.glob(f"{folder}/*.json")}
    assert len(files) > 4
    before, read = {name: make() for name, make in experiments.TABLES.items()}, experiments.read
    for changed in files:
        monkeypatch.setattr(
            experiments,
            "read",
            lambda name, c=changed: moved(read(name)) if name == c else read(name),
        )
        assert any(make() != before[name] for name, make in experiments.TABLES.items()), changed


def moved(results):
    """Results of which each number is another one; every second of a list, so that errors move."""
    if isinstance(results, dict):
        return {name: moved(part) for name, part in results.items()}
    if isinstance(results, list):
        return [part if place % 2 else moved(part) for place, part in enumerate(results)]
    if isinstance(results, int):
        return results // 2
    return results * 0.9 if isinstance(results, float) else results
