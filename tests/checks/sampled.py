"""Examples, benchmarks and pages run slowly in one framework a commit, and where they changed.

The hash of the commit chooses the framework, and what the last fifty commits changed, more than are
pushed at once, chooses the files, so that every few pushes have run everything. A tag, a changed
working tree and a shorter history run all of it, as do ``EVERYTHING=1`` and a file of tests that is
named. ``CHANGED_SINCE`` names another commit to compare with.
"""

import functools
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = (
    "moment_calculus/",
    "moment_inference/",
    "pyro_moments/",
    "numpyro_moments/",
    "guides/",
    "pyproject.toml",
)
READ = {
    "test_alone.py": ("docs/", "README.md"),
    "test_benchmarks.py": ("benchmarks/",),
    "test_distributed.py": ("examples/",),
    "test_examples.py": ("examples/",),
    "test_how_fast.py": ("benchmarks/",),
    "test_image_examples.py": ("examples/",),
    "test_own_data.py": ("docs/", "README.md"),
    "test_peers.py": ("benchmarks/",),
    "test_readme.py": ("docs/", "README.md", "CONTRIBUTING.md"),
}


def git(*arguments: str) -> str | None:
    """What git prints; nothing where it fails or is missing."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def sample() -> tuple[str, tuple[str, ...]] | None:
    """The commit's framework and changed files; none where all is to run."""
    since = os.environ.get("CHANGED_SINCE", "HEAD~50")
    commit, changed = git("rev-parse", "HEAD"), git("diff", "--name-only", since, "HEAD")
    if os.environ.get("EVERYTHING") or commit is None or changed is None:
        return None
    if git("status", "--porcelain") or git("describe", "--tags", "--exact-match"):
        return None
    return ("pyro", "numpyro")[int(commit, 16) % 2], tuple(changed.splitlines())


def framework(test: str) -> str:
    """That a test's name says, or Pyro, in which the others are."""
    return "numpyro" if "numpyro" in test.lower() else "pyro"


def is_left_out(file: str, test: str, chosen: str, changed: tuple[str, ...]) -> bool:
    """Whether a slow test of these files is left to another commit."""
    read = READ.get(Path(file).name)
    if read is None:
        return False
    own = (*ALWAYS, *read, f"tests/project/{Path(file).name}")
    return framework(test) != chosen or not any(name.startswith(own) for name in changed)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Deselect what this commit leaves out."""
    named = any(".py" in argument for argument in config.args)
    chosen = None if named else sample()
    if chosen is None:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    out = {item for item in slow if is_left_out(item.path.name, item.name, *chosen)}
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=[*out])


def pytest_report_header():
    chosen = sample()
    told = f"slowly in {chosen[0]} alone, where they changed" if chosen else "in both frameworks"
    return f"examples, benchmarks and pages: {told}"
