"""The matrix of Pythons and dependencies: what it names, and the oldest versions."""

import re
import sys

from tests.project.distributions import ROOT
from tests.project.matrix import interpreters, main, requirements

PIN = re.compile(r"(?P<name>[\w-]+)==(?P<version>[\d.]+)(?:; python_version (?P<when>.+))?$")
EXTRAS = ("", "pyro", "numpyro", "diagnostics")


def pins():
    lines = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    return [PIN.match(line) for line in lines if not line.startswith("#")]


def numbers(version):
    return tuple(map(int, version.split(".")))


def bounds():
    found = [re.match(r"([\w-]+)>=([\d.]+)", line) for x in EXTRAS for line in requirements(x)]
    return {match[1]: numbers(match[2]) for match in found}


def test_the_oldest_set_is_that_of_the_lower_bounds():
    lower, names = bounds(), {pin["name"] for pin in pins()}
    assert names == set(lower)
    for pin in pins():
        bound = lower[pin["name"]]
        if (pin["when"] or "").startswith(">="):  # of newer Pythons, which may need more
            assert numbers(pin["version"]) > bound
        else:
            padded = (*bound, *[0] * 3)
            assert numbers(pin["version"]) == padded[: len(numbers(pin["version"]))]


def test_pythons_are_looked_for_and_missing_ones_named(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    found, missing = interpreters([sys.executable, "3.1", str(broken), "no/such/python"])
    assert [*found] == [sys.executable]
    assert found[sys.executable].startswith(f"3.{sys.version_info.minor}.")
    assert missing == ["3.1", str(broken), "no/such/python"]


def test_one_python_is_no_matrix(capsys):
    assert main([sys.executable, "3.1"]) == 1
    printed = capsys.readouterr().out
    assert "Python 3.1 is missing" in printed
    assert "1 of 2 Pythons found" in printed
