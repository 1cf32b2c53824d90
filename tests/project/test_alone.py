"""Each framework runs where the other does not exist, beside a user's modules of common names.

One process a framework runs many programs: importing takes longer than most of them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.counts import ROOT
from tests.project.test_readme import BLOCKS, DOCS, IN_PYRO, python_blocks, quickly

STRAY = ("benchmarks", "docs", "examples", "guides", "tests")  # in many users' folders
PROGRAM = ROOT / "tests" / "project" / "alone_program.py"
BLOCKER = DOCS / "_ext" / "alone.py"
VERBS = (ROOT / "tests" / "project" / "alone_verbs.py").read_text(encoding="utf-8")
CALLS = {
    "pyro": ['predictions("Normal", "Poisson")', "by_other_ways()", "verbs()"],
    "numpyro": ['predictions("Poisson")', "verbs()"],
}
HOSTS = {"pyro": ("torch", "pyro"), "numpyro": ("jax", "numpyro")}
FAST = {
    "pyro": r"modules|README|coming|predictions|by_other_ways|verbs\(",
    "numpyro": r"modules|README 1",
}
SLOW = {  # other fragments take minutes; the site runs all, without the other framework too
    "pyro": r"pages|digits|hierarchies|network|regression|streaming|verbs_",
    "numpyro": r"README 3|pages|predictions|verbs\(",
}
# The lower floors load no framework; the front end does not even ask for the other one.
MODULES = """
import importlib, pkgutil, sys

def load(*names):
    for name in names:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, name + "."):
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                assert 'pip install "pyro-moments[numpyro,fl' in str(error), error

load("moment_calculus", "moment_inference", "moment_guides.families")
assert sys.modules.keys().isdisjoint({names!r}), "a framework was loaded"
load("{framework}_moments", "moment_guides.{framework}")
assert sys.modules.keys() >= set({names!r})
asked = [name for name in sys.meta_path[0].wanted if name.split(".")[0] in {others!r}]
assert asked == [], asked
"""


def shortened(text: str) -> str:
    """Code whose trainings and chains take a few steps."""
    text = re.sub(r"for _ in range\(\d+\)", "for _ in range(3)", text)
    text = re.sub(r"(jax\.random\.key\(0\)), \d{3,}", r"\1, 3", text)
    counts = r"\b(steps|warmup_steps|epochs|num_warmup|num_samples)(=|\": )\d+"
    return re.sub(counts, r"\1\g<2>3", text)


def programs(framework: str) -> dict[str, list[str]]:
    """Blocks that are run in order, by name: all that users are shown for a framework."""
    other = "pyro" if framework == "numpyro" else "numpyro"
    readme = {
        f"README {number}": quickly([block])
        for number, block in enumerate(BLOCKS)
        if ("numpyro" in block) == (framework == "numpyro")
    }
    pages = IN_PYRO if framework == "pyro" else [DOCS / "numpyro.md"]
    fragments = {
        path.stem: [shortened(path.read_text(encoding="utf-8"))]
        for path in sorted(DOCS.glob(f"fragments/*_{framework}.py"))
    }
    others = {*HOSTS[other], "jaxlib", f"{other}_moments"}
    modules = {"framework": framework, "names": HOSTS[framework], "others": others}
    return {
        "modules": [MODULES.format(**modules)],
        **readme,
        "pages": quickly([block for page in pages for block in python_blocks(page)]),
        **fragments,
        **{call: [VERBS, call] for call in CALLS[framework]},
    }


def failures(framework: str, names: list[str], folder: Path, *options: str) -> dict[str, str]:
    """The tracebacks of the programs that failed, by name."""
    for name in STRAY:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name}.py of the user')\n")
    few = {name: blocks for name, blocks in programs(framework).items() if name in names}
    shutil.copy(BLOCKER, folder)
    done = subprocess.run(
        [sys.executable, shutil.copy(PROGRAM, folder), framework, *options],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "agg"},
        input=json.dumps(few),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(framework: str, pattern: str, folder: Path, *options: str) -> None:
    """All programs run whose names begin like a pattern, each alternative of which names one."""
    names = [name for name in programs(framework) if re.match(pattern, name)]
    for part in pattern.split("|"):
        assert any(re.match(part, name) for name in names), part
    assert failures(framework, names, folder, *options) == {}


@pytest.mark.parametrize("framework", HOSTS)
def test_a_framework_alone(framework, tmp_path):
    """The README, and what fits and their predictions are asked."""
    check(framework, FAST[framework], tmp_path)


@pytest.mark.parametrize("framework", HOSTS)
def test_pages_of_a_framework_alone(framework, tmp_path):
    """Compiling would take longer than they do."""
    check(framework, SLOW[framework], tmp_path, *[str(ROOT)] * (framework == "numpyro"))


def test_what_is_missing_is_reported(monkeypatch, tmp_path):
    """Of the other framework, of a further package that is not named, and of a stray module."""
    blocks = {
        "other": ["import jax"],
        "extra": ["import importlib; importlib.import_module('op' + 'tax')"],
        "stray": ["import guides"],
        "fine": ["import numpy"],
    }
    monkeypatch.setattr(sys.modules[__name__], "programs", lambda framework: blocks)
    found = failures("pyro", list(blocks), tmp_path)
    assert found.keys() == {"other", "extra", "stray"}
    assert "No module named 'jax'" in found["other"]
    assert "No module named 'optax'" in found["extra"]
    assert "guides.py of the user" in found["stray"]
