"""What setuptools is told to install, and that a user's modules of common names shadow nothing."""

import tomllib

from tests.project.counts import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETTINGS = PROJECT["tool"]["setuptools"]


def test_all_folders_with_an_init_are_installed():
    """Under the name that each is imported by."""
    found = [
        ".".join((package, *init.parent.relative_to(ROOT / folder).parts))
        for folder, package in PACKAGES.items()
        for init in (ROOT / folder).rglob("__init__.py")
    ]
    assert sorted(SETTINGS["packages"]) == sorted(found)
    named = {package: folder for folder, package in PACKAGES.items() if folder != package}
    assert SETTINGS["package-dir"] == {"": ".", **named}
