"""Wheel and sdist: what is in them, and each front end where the other framework is missing."""

import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, version

import pytest
from packaging.requirements import Requirement

import moment_calculus
from tests.project.counts import PACKAGES, ROOT
from tests.project.distributions import copy_of_source, run, sdist_of, wheel_of
from tests.project.matrix import literal_line, requirements

MISSING = {"pyro": ["jax", "jaxlib", "numpyro"], "numpyro": ["torch", "pyro"]}
STRAY = ("guides", "tests", "examples", "benchmarks")  # which users have in their folders
ALONE = """
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing)
sys.path.insert(1, {wheel!r})
"""
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
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    ours, theirs = (zipfile.ZipFile(path) for path in (wheel, wheel_of(unpacked, tmp_path)))
    assert sorted(ours.namelist()) == sorted(theirs.namelist())
    assert [name for name in ours.namelist() if ours.read(name) != theirs.read(name)] == []


@pytest.mark.parametrize("framework", MISSING)
def test_a_front_end_runs_alone_from_the_wheel(wheel, framework, tmp_path):
    """Beside stray modules, with this interpreter's packages but for the other framework."""
    unpacked = tmp_path / "wheel"
    zipfile.ZipFile(wheel).extractall(unpacked)
    for name in STRAY:
        (tmp_path / f"{name}.py").write_text("raise AssertionError('a module of the user')\n")
    alone = ALONE.format(missing=MISSING[framework], wheel=str(unpacked))
    where = f"import {framework}_moments; print({framework}_moments.__file__)\n"
    printed = run(sys.executable, "-c", alone + literal_line(framework) + where, cwd=tmp_path)
    assert printed.splitlines()[-1].startswith(f"{unpacked}/")
    with pytest.raises(RuntimeError, match="No module named"):
        run(sys.executable, "-c", f"{alone}import {MISSING[framework][0]}", cwd=tmp_path)


def test_the_wheel_asks_for_what_the_other_tests_run_with(wheel, tmp_path):
    """The requirements of its extras, which make test-matrix installs, hold here."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (metadata,) = tmp_path.glob("*.dist-info")
    asked = Distribution.at(metadata).requires
    assert {*map(Requirement, asked)} >= {*map(Requirement, requirements())}
    for line in asked:
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in MISSING):
            assert version(needed.name) in needed.specifier
