"""The documentation site: its pages, its fragments in both frameworks, and the API."""

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
RUNNER = DOCS / "_ext" / "run_cells.py"
LONGEST = 76  # columns of code, which the boxes of the site show
FRAGMENTS = sorted({path.stem.rpartition("_")[0] for path in DOCS.glob("fragments/*.py")})
USES = [
    (page, *use)
    for page in DOCS.rglob("*.md")
    for use in re.findall(r"^<!-- cell: (\w+) (.+) -->$", page.read_text(encoding="utf-8"), re.M)
]


def cells_of(name, framework):
    text = (DOCS / "fragments" / f"{name}_{framework}.py").read_text(encoding="utf-8")
    return re.findall(r"^# %% (.+)$", text, re.M)


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragments_have_the_same_cells_and_pages_show_all(name):
    cells = cells_of(name, "pyro")
    assert cells == cells_of(name, "numpyro")
    assert [cell for _, fragment, cell in USES if fragment == name] == cells


@pytest.fixture
def cells(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("cells")


@pytest.mark.parametrize("page", sorted({page for page, *_ in USES}), ids=lambda page: page.stem)
def test_pages_have_the_code_of_the_fragments(page, cells):
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- cell: ") == len(cells.BLOCK.findall(text))
    assert text == cells.written(text), "run make pages"


def test_a_changed_fragment_changes_its_page(cells, monkeypatch):
    page = DOCS / "verbs.md"
    monkeypatch.setattr(cells, "code", lambda name, cell: {"Pyro": "1", "NumPyro": "2"})
    assert "In NumPyro:\n\n```python\n2\n```" in cells.written(page.read_text(encoding="utf-8"))


CODE = re.compile(r"^ *```(?:python|sh|console)\n(.*?)^ *```", re.M | re.S)


def test_code_fits_into_its_box():
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]
    lines = [
        (page.name, line)
        for page in pages
        for body in CODE.findall(page.read_text(encoding="utf-8"))
        for line in body.splitlines()
    ]
    assert len(lines) > 1000
    assert [found for found in lines if len(found[1]) > LONGEST] == []


@pytest.mark.parametrize("package", ["pyro_moments", "numpyro_moments"])
def test_every_public_name_has_an_entry(package):
    page = (DOCS / "api" / f"{package}.md").read_text(encoding="utf-8")
    documented = re.findall(rf"^\.\. (?:auto|py:)\w+:: {package}\.(\w+)", page, re.M)
    assert sorted(documented) == sorted(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", ["pyro_moments", "numpyro_moments"])
def test_the_tables_of_names_are_those_of_the_docstrings(package, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    names = importlib.import_module("names")
    page = (DOCS / "api" / f"{package}.md").read_text(encoding="utf-8")
    assert page == names.written(package, page), "run make pages"
    assert page.count("| {py:obj}`") == len(names.PARTS.findall(page)) - page.count("\n## ")


OPTIONS = re.compile(r"^\*\*[\w-]+\*\*: (.+(?:\n.+)*)", re.M)  # of fit, by groups


@pytest.mark.parametrize("framework", ["pyro", "numpyro"])
def test_training_names_all_options_of_fit(framework):
    text = " ".join(OPTIONS.findall((DOCS / "training.md").read_text(encoding="utf-8")))
    fit = importlib.import_module(f"{framework}_moments").fit
    options = set(inspect.signature(fit).parameters) - {"model", "guide", "data", "named"}
    assert options - set(re.findall(r"`(\w+)`", text)) == set()


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in DOCS.rglob("*.md"):
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{entry}.md").resolve() for entry in entries}
    assert {page.resolve() for page in DOCS.rglob("*.md")} - listed == {DOCS / "index.md"}


RESULTS = re.compile(
    r"(Warning|Fit|Progress|Prediction|Accuracy|Attribution|Calibration|Comparison|Report)$"
)
NOT_CALLED = {"Diagnosis", "Finding", "LinearResponse", "MomentTensor", "Nested", "NotAnOptimum"}
NOT_CALLED |= {"UnsupportedMoments", "StoredFileError", "moment_rule"}  # this one in extending.md


@pytest.mark.parametrize("framework", ["pyro", "numpyro"])
def test_every_verb_guide_and_objective_has_an_executed_example(framework):
    names = set(importlib.import_module(f"{framework}_moments").__all__) - NOT_CALLED
    fragments = [path.read_text("utf-8") for path in DOCS.glob(f"fragments/*_{framework}.py")]
    imports = rf"^from {framework}_moments import (\([^)]+\)|.+)$"
    imported = re.findall(imports, "\n".join(fragments), re.M)
    used = set(re.findall(r"\w+", " ".join(imported)))
    assert {name for name in names if not RESULTS.search(name)} - used == set()


def run(tmp_path, *codes, options=(), name="fragment{}"):
    """The process that ran these files, and the texts of their cells by name."""
    paths = []
    for number, code in enumerate(codes):
        file, folder = tmp_path / f"{name.format(number)}.py", tmp_path / str(number)
        file.write_text(code, encoding="utf-8")
        folder.mkdir()
        paths += [file, folder]
    command = [sys.executable, str(RUNNER), *map(str, paths), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def texts(folder):
    found = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
    return {name: cell["text"] for name, cell in found.items()}


def test_cells_share_names_and_show_their_last_value(tmp_path):
    done = run(tmp_path, "# %% one\nx = 1\nprint('begun')\n# %% two\nx + 1\n")
    assert done.returncode == 0, done.stderr
    assert texts(tmp_path / "0") == {"one": "begun", "two": "2"}


def test_a_failing_cell_is_told_with_its_line(tmp_path):
    done = run(tmp_path, "# %% one\nx = 1\n# %% two\n\nassert x == 2\n")
    assert done.returncode != 0
    assert 'fragment0.py", line 5' in done.stderr
    assert not (tmp_path / "0" / "cells.json").exists()


STEPS = """# %% one
simulations = 100
print(simulations, dict(steps=60, batch_size=60), {"epochs": 4, "width": 40})
"""


@pytest.mark.parametrize(("options", "counts"), [((), (10, 6, 4)), (["--full"], (100, 60, 4))])
def test_a_draft_takes_a_tenth_of_the_steps(tmp_path, options, counts):
    assert run(tmp_path, STEPS, options=options).returncode == 0
    simulations, steps, epochs = counts
    text = (
        f"{simulations} {{'steps': {steps}, 'batch_size': 60}} {{'epochs': {epochs}, 'width': 40}}"
    )
    assert texts(tmp_path / "0") == {"one": text}


def test_a_file_sees_nothing_of_others(tmp_path, monkeypatch):
    """Names, files and further packages, which are imported once for all."""
    (tmp_path / "sklearn.py").touch()  # the package itself takes a second
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    writes = "# %% one\nimport sklearn\nimport json\njson.mine = x = 1\nopen('mine', 'w').close()\n"
    looks = """# %% one
import importlib, json, os
try:
    importlib.import_module("sk" + "learn")
except ImportError as error:
    print(error)
print(hasattr(json, "mine"), os.listdir(), "x" in globals())
"""
    done = run(tmp_path, writes, looks, name="fragment{}_pyro")
    assert done.returncode == 0, done.stderr
    assert texts(tmp_path / "1") == {"one": "No module named 'sklearn'\nFalse [] False"}
