"""A page with a wrong name, a wrong link or a failing cell fails the build; a right one passes."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.project.test_readme import ROOT

DOCUMENTED = "moment_calculus.errors.UnsupportedMoments"  # which imports no framework
LINKS = f"{{py:class}}`{DOCUMENTED}`, [a page](api.md)"
RIGHT = f"{LINKS}\n\n<!-- cell: sums one -->\n<!-- end -->\n"
API = f"# API\n\n```{{eval-rst}}\n.. autoclass:: {DOCUMENTED}\n```\n"
BROKEN = {
    "name": (DOCUMENTED, "pyro_moments.fitted", "reference target not found"),
    "link": ("(api.md)", "(missing.md)", "missing.md"),
    "cell": ("sums one", "sums two", "has no cell"),
}


def flags() -> list[str]:
    """Of sphinx-build in the Makefile."""
    found = re.search(r"sphinx-build (.*) docs docs/_build", (ROOT / "Makefile").read_text())
    return found[1].replace("$(WORKERS)", "1").split()


def build(folder, text, **pages):
    """What Sphinx says of a page, and of others beside it."""
    docs = folder / "docs"
    (docs / "fragments").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "conf.py", docs)
    for part in ("_ext", "_static"):
        shutil.copytree(ROOT / "docs" / part, docs / part)
    (docs / "api.md").write_text(API, encoding="utf-8")
    for name, content in pages.items():
        (docs / f"{name}.md").write_text(f"# {name}\n\n{content}", encoding="utf-8")
    listed = "\n".join(["api", *pages])
    page = f"# Title\n\n{text}\n```{{toctree}}\n{listed}\n```\n"
    (docs / "index.md").write_text(page, encoding="utf-8")
    for framework in ("pyro", "numpyro"):
        (docs / "fragments" / f"sums_{framework}.py").write_text("# %% one\n1 + 1\n")
        (docs / "fragments" / f"wrong_{framework}.py").write_text("# %% one\n1 / 0\n")
    command = [sys.executable, "-m", "sphinx", *flags(), str(docs), str(folder / "html")]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_a_right_page_is_built(tmp_path):
    done = build(tmp_path, RIGHT)
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert "NumPyro" in html
    assert html.count('class="output') == 2  # what the cell prints, in both frameworks
    assert [html.count(f'class="only-{name}') for name in ("pyro", "numpyro")] == [1, 1]
    assert html.count('class="sd-tab-label"') == 2  # one switch


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """The lines that Sphinx writes of a build with all broken pages and a right one."""
    pages = {what: RIGHT.replace(right, wrong) for what, (right, wrong, _) in BROKEN.items()}
    assert RIGHT not in pages.values()
    done = build(tmp_path_factory.mktemp("broken"), RIGHT, **pages)
    assert done.returncode != 0
    return [line for line in done.stderr.splitlines() if re.search("WARNING|ERROR", line)]


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_page_is_complained_of(complaints, what):
    """Any complaint makes the build fail."""
    found = [f"{what}.md" in line and BROKEN[what][2] in line for line in complaints]
    assert sum(found) == 1, complaints
    assert len(complaints) == len(BROKEN)  # none of the right page


def test_a_failing_cell_fails_the_build(tmp_path):
    done = build(tmp_path, RIGHT.replace("sums one", "wrong one"))
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
