"""The python blocks of the README and of the pages: none escapes, those of extending.md run."""

import ast
import re
import sys
import textwrap
import types
from pathlib import Path

import pyro
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
IN_PYRO = [DOCS / f"{name}.md" for name in ("training", "guides", "objectives", "checks")]
PAGES = [*IN_PYRO, DOCS / "numpyro.md"]
EXTENDING = DOCS / "extending.md"
FOR_AUTHORS = [ROOT / "CONTRIBUTING.md", EXTENDING, DOCS / "architecture.md"]
DOCUMENTS = [ROOT / "README.md", *FOR_AUTHORS, *PAGES]
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


# What takes long is done less often than it is written there.
FEWER = {
    "range(200)": "range(3)",
    "hidden=50": "hidden=4",
    "epochs=50": "epochs=2",
    "range(100)": "range(3)",
    "num_warmup=100, num_samples=100": "num_warmup=9, num_samples=9",
    'layer("first", x, 50)': 'layer("first", x, 4)',
    "jax.random.key(0), 200": "jax.random.key(0), 3",
    "num_warmup=50, num_samples=50": "num_warmup=9, num_samples=9",
    "epochs=20, restarts=4": "epochs=1, restarts=2",
    "jax.random.key(0), 200, jnp": "jax.random.key(0), 3, jnp",
    "steps=500": "steps=3",
}


def quickly(blocks: list[str]) -> list[str]:
    """The blocks with smaller numbers."""
    for written, fewer in FEWER.items():
        blocks = [block.replace(written, fewer) for block in blocks]
    return blocks


def run_in_order(blocks: list[str], filename: str, namespace: dict[str, object]) -> None:
    for code in blocks:
        exec(compile(code, filename, "exec"), namespace)


@pytest.fixture
def fresh_module(monkeypatch):
    """A new module, registered in sys.modules because dataclasses and pickle look it up there."""
    module = types.ModuleType("readme_blocks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_blocks_of_extending_run_in_order(fresh_module, monkeypatch, tmp_path):
    """Those of the README and of the pages run one framework at a time, in ``test_alone.py``."""
    monkeypatch.chdir(tmp_path)  # what a block saves stays out of the repository
    run_in_order(quickly(python_blocks(EXTENDING)), "extending", vars(fresh_module))


BLOCKS = python_blocks(ROOT / "README.md")


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 250
    assert len(BLOCKS) == 4  # what it prints, the literal line, two tasks


def test_the_first_block_prints_what_stands_below_it(fresh_module, capsys):
    (_, _), (_, first), (tag, printed), *_ = [
        fence for fence in fences(ROOT / "README.md") if fence[0] in ("sh", "python", "text")
    ]
    pyro.clear_param_store()
    run_in_order([first], "README.md", vars(fresh_module))
    assert tag == "text"
    assert f"{first.strip()}\n```\n\n```text\n{printed.strip()}\n```" in (
        DOCS / "index.md"
    ).read_text(encoding="utf-8")
    assert capsys.readouterr().out.split() == printed.split()


def test_imports_of_all_blocks_are_there():
    for block in [block for page in (ROOT / "README.md", *PAGES) for block in python_blocks(page)]:
        tree = ast.parse(block)
        lines = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        run_in_order(list(map(ast.unparse, lines)), "README.md", {})


def test_what_is_done_less_often_is_written():
    text = "".join(block for page in (ROOT / "README.md", *PAGES) for block in python_blocks(page))
    assert [written for written in FEWER if written not in text] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_block_escapes(document):
    tags = [tag for tag, _ in fences(document)]
    assert 2 * len(tags) == document.read_text(encoding="utf-8").count("```")
    assert all(tags), "a block without a language"
    assert [tag for tag in tags if re.match("py|ipy", tag, re.I) and tag != "python"] == []


@pytest.mark.parametrize("document", FOR_AUTHORS, ids=lambda path: path.name)
def test_named_files_exist(document):
    text = document.read_text(encoding="utf-8")
    rooms = "moment_calculus|moment_inference|pyro_moments|numpyro_moments|guides|tests|docs"
    named = set(re.findall(rf"`((?:{rooms})/[\w/.]*)`", text))
    assert len(named) > 9
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_contributing_is_short():
    assert FOR_AUTHORS[0].read_text(encoding="utf-8").count("\n") <= 120


def test_a_failing_block_is_reported_at_its_line(tmp_path):
    document = tmp_path / "document.md"
    document.write_text(
        "# Title\n\n```python\nx = 1\n```\n\n- item\n\n  ```python\n  assert x == 2\n  ```\n"
    )
    with pytest.raises(AssertionError) as failure:
        run_in_order(python_blocks(document), str(document), {})
    assert failure.traceback[-1].lineno + 1 == 10
