"""Which tests are slow: those that ``tests/slow.json`` names, by their measured processor seconds.

``python -m tests.checks.slow tests/one.py`` runs files and brings the list up to date;
``python -m tests.checks.slow build/durations.json`` does so by what a run wrote that had
``DURATIONS=build/durations.json`` in its environment, as continuous integration's has.
"""

import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "slow.json"
SLOW = 1.0  # seconds of the processor, above which a test is slow
QUICK = 0.15  # below which a slow one is so no more; between these it stays what it was


def parts(test: str) -> tuple[str, str, str | None]:
    """File, function and row of the name of a test; no row of one without parameters."""
    file, _, function = test.partition("::")
    function, bracket, row = function.partition("[")
    return file, function, row.removesuffix("]") if bracket else None


def listed() -> set[str]:
    """The names of the slow tests."""
    return {
        f"{file}::{function}" + ("" if row is None else f"[{row}]")
        for file, functions in json.loads(LIST.read_text(encoding="utf-8")).items()
        for function, rows in functions.items()
        for row in rows or [None]
    }


def write(tests: set[str]) -> None:
    """Store the list, one test function a line."""
    files: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file, function, row in sorted(map(parts, tests), key=str):
        files[file][function] += [] if row is None else [row]
    text = ",\n".join(
        f" {json.dumps(file)}: {{\n"
        + ",\n".join(
            f"  {json.dumps(function)}: {json.dumps(rows, ensure_ascii=False)}"
            for function, rows in functions.items()
        )
        + "\n }"
        for file, functions in files.items()
    )
    LIST.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


def changed(tests: set[str], seconds: dict[str, float], whole: bool = False) -> set[str]:
    """The list after a measurement: of whole files, in which a name without seconds is of no test.

    A run of all tests leaves some to other commits (``sampled.py``): what it did not measure stays.
    """
    files = {parts(test)[0] for test in seconds if whole}
    gone = {test for test in tests - {*seconds} if not (ROOT / parts(test)[0]).exists()}
    gone |= {test for test in tests - {*seconds} if parts(test)[0] in files}
    quick = {test for test, found in seconds.items() if found < QUICK}
    return (tests - gone - quick) | {test for test, found in seconds.items() if found > SLOW}


def stale(tests: set[str], found: set[str]) -> list[str]:
    """Listed names that no test of the collected files has, or whose file is gone."""
    files = {parts(test)[0] for test in found}
    return sorted(
        test
        for test in tests - found
        if parts(test)[0] in files or not (ROOT / parts(test)[0]).exists()
    )


# -------------------------------------------------------------------------------------------------
# Hooks of pytest, which tests/conftest.py registers


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what the list names; refuse a name that no test has, whose test would change suites."""
    tests = listed()
    for item in items:
        if item.nodeid in tests:
            item.add_marker(pytest.mark.slow)
    whole = not any("::" in argument for argument in config.args)
    wrong = stale(tests, {item.nodeid for item in items}) if whole else []
    if wrong and "MEASURED_ANEW" not in os.environ:
        raise pytest.UsageError(
            f"tests/slow.json lists {wrong[0]}, which no test is ({len(wrong)} such names): "
            f"python -m tests.checks.slow {parts(wrong[0])[0]}"
        )


def processor_seconds() -> float:
    """Of this process and of those that it started and waited for."""
    return time.process_time() + sum(os.times()[2:4])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Keep what a fixture of several tests costs, for those that find it ready."""
    before = processor_seconds()
    value = yield
    if request.scope != "function":
        key = request.node.nodeid, fixturedef.argname
        _SHARED[key] = processor_seconds() - before
        _NEW.add(key)
    return value


def _found_ready(item) -> float:
    """What an item's fixtures took that others had set up."""
    keys = {(node.nodeid, name) for node in item.listchain() for name in item.fixturenames}
    return sum(_SHARED[key] for key in keys & _SHARED.keys() - _NEW)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add to the report of a phase the processor's seconds since the report before.

    Those that a test takes alone: fixtures that it shares count for each of their tests.
    """
    report = yield
    now = processor_seconds()
    report.processor_seconds = now - _LAST.get("now", now)
    if call.when == "setup":
        report.processor_seconds += _found_ready(item)
    _LAST["now"] = now
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart():
    _LAST["now"] = processor_seconds()
    _NEW.clear()


_SHARED: dict[tuple[str, str], float] = {}  # by node and name of the fixture
_NEW: set[tuple[str, str]] = set()  # those that the present test has set up
_LAST: dict[str, float] = {}
_SECONDS: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report):
    if not report.skipped:
        _SECONDS[report.nodeid] += report.processor_seconds


def pytest_terminal_summary(terminalreporter):
    """Where a file for them is named, write the seconds, and tell which tests are newly slow."""
    if "DURATIONS" not in os.environ:
        return
    file = Path(os.environ["DURATIONS"])
    file.parent.mkdir(parents=True, exist_ok=True)
    longest_first = sorted(_SECONDS.items(), key=lambda entry: -entry[1])
    rounded = {test: round(seconds, 3) for test, seconds in longest_first}
    file.write_text(json.dumps(rounded, indent=0, ensure_ascii=False), encoding="utf-8")
    new = sorted(test for test in {*changed(set(), rounded)} - listed())
    if new:
        terminalreporter.section("above one second, and not in tests/slow.json")
        for test in new:
            terminalreporter.line(f"{rounded[test]:7.2f}s {test}")
        terminalreporter.line(f"python -m tests.checks.slow {file} adds them")


def main(arguments: list[str]) -> None:
    """Bring the list up to date by files of tests, which are run, or by a file of seconds."""
    with tempfile.TemporaryDirectory() as folder:
        measured = arguments[0]
        whole = not measured.endswith(".json")
        if whole:
            measured = f"{folder}/durations.json"
            os.environ |= {"DURATIONS": measured, "MEASURED_ANEW": "1"}
            if pytest.main(["-q", "-m", "slow or not slow", *arguments]):
                sys.exit("tests failed: the list stays as it is")
        seconds = json.loads(Path(measured).read_text(encoding="utf-8"))
    before = listed()
    after = changed(before, seconds, whole)
    write(after)
    print(f"{len(after - before)} tests are slow now, {len(before - after)} are not any more")


if __name__ == "__main__":
    main(sys.argv[1:])
