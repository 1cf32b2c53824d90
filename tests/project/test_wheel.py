"""Wheel and sdist: what is in them, and each front end alone in an empty environment."""

from __future__ import annotations

import sys
import tarfile
import venv
import zipfile

import pytest

import moment_calculus
from tests.project.counts import PACKAGES, ROOT
from tests.project.distributions import copy_of_source, run, sdist_of, wheel_of
from tests.project.matrix import Cell, literal_line, run_cell

ALONE = {"pyro": "numpyro", "numpyro": "torch"}  # what is missing
# of continuous integration and of checkouts, or made by the build
NOT_IN_BOTH = (
    ".ci/",
    ".gitignore",
    ".pre-commit",
    "PKG-INFO",
    "setup.cfg",
    "pyro_moments.egg-info/",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = copy_of_source(tmp_path_factory.mktemp("source"))
    for left_over in ("tests/__pycache__/x.pyc", "docs/_build/html/x.html"):
        (folder / left_over).parent.mkdir(parents=True)
        (folder / left_over).touch()
    return folder


@pytest.fixture(scope="module")
def sdist(source, tmp_path_factory):
    return sdist_of(source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(source, sdist, tmp_path_factory):  # after the sdist, which takes what builds leave
    return wheel_of(source, tmp_path_factory.mktemp("wheel"))


def test_what_is_in_the_wheel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(
        PACKAGES.values()
    )
    assert {f"{package}/py.typed" for package in PACKAGES.values()} <= set(names)
    assert moment_calculus.__version__ in wheel.name


def test_the_sdist_is_what_git_tracks(sdist):
    """Tests, pages and examples too, so that the suite runs from it."""
    with tarfile.open(sdist) as archive:
        found = {
            name.partition("/")[2] for name in archive.getnames() if not is_folder(archive, name)
        }
    tracked = set(run("git", "ls-files", "-z", cwd=ROOT).split("\0")) - {""}
    assert {name for name in found ^ tracked if not name.startswith(NOT_IN_BOTH)} == set()


def is_folder(archive, name):
    return archive.getmember(name).isdir()


def test_the_sdist_makes_the_same_wheel(sdist, wheel, tmp_path):
    ours, theirs = (zipfile.ZipFile(path) for path in (wheel, wheel_of(sdist, tmp_path)))
    assert sorted(ours.namelist()) == sorted(theirs.namelist())
    assert [name for name in ours.namelist() if ours.read(name) != theirs.read(name)] == []


@pytest.mark.parametrize("extra", ALONE)
def test_a_front_end_runs_alone_from_the_wheel(wheel, extra, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    options = ["-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    run(python, "-m", "pip", "install", *options, f"{wheel}[{extra}]", cwd=tmp_path)
    check = f"import importlib.util as u; assert u.find_spec('{ALONE[extra]}') is None\n"
    front_end = f"import {extra}_moments; print({extra}_moments.__version__)\n"
    printed = run(python, "-I", "-c", check + literal_line(extra) + front_end, cwd=tmp_path)
    assert printed.strip() == moment_calculus.__version__


def test_the_oldest_versions_that_are_allowed(wheel, tmp_path):
    """One cell of make test-matrix; it raises what fails."""
    cell = Cell(sys.executable, "this", "oldest")
    run_cell(cell, wheel, tmp_path)
    assert "numpy 2.0.0" in cell.installed
