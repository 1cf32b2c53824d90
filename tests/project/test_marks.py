"""The list of slow tests follows what was measured, and names tests that there are."""

import pytest

from tests.checks import slow

ONE, TWO, ROW = (f"tests/conftest.py::test_{name}" for name in ("one", "two", "rows[a::b[c]-1]"))
ELSEWHERE, GONE = "tests/checks/slow.py::test_it", "tests/gone.py::test_it"


def test_a_measurement_changes_the_list():
    seconds = {ONE: 1.1, TWO: 0.5, ROW: 0.05}
    assert slow.changed({ROW, ELSEWHERE, GONE}, seconds) == {ONE, ELSEWHERE}
    renamed = f"{TWO}[renamed]"
    assert slow.changed({TWO, renamed}, seconds, whole=True) == {ONE, TWO}
    assert slow.changed({TWO, renamed}, seconds) == {ONE, TWO, renamed}


@pytest.fixture(scope="module")
def _costly():
    end = slow.processor_seconds() + 0.05
    while slow.processor_seconds() < end:
        pass


@pytest.mark.parametrize("row", range(2))
@pytest.mark.usefixtures("_costly")
def test_a_shared_fixture_counts_for_each_of_its_tests(request, row):
    mine = request.node.parent.nodeid, "_costly"
    assert slow._SHARED[mine] > 0.04
    assert slow._found_ready(request.node) == (0.0 if mine in slow._NEW else slow._SHARED[mine])
    slow._NEW.clear()
    assert slow._found_ready(request.node) == slow._SHARED[mine], row


def test_names_that_no_test_has_are_found():
    assert slow.stale({ONE, TWO, ELSEWHERE, GONE}, {ONE}) == [TWO, GONE]


def test_a_stored_list_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(slow, "LIST", tmp_path / "slow.json")
    slow.write({ONE, ROW, ELSEWHERE})
    assert slow.listed() == {ONE, ROW, ELSEWHERE}
    assert slow.LIST.read_text().count("\n") == 9


def test_what_the_list_names_is_marked(request, monkeypatch):
    config, item = request.config, request.node
    monkeypatch.setattr(config, "args", ["tests"])
    for named, names in ((True, [item.nodeid]), (False, [])):
        monkeypatch.setattr(slow, "listed", lambda names=names: {*names})
        item.own_markers.clear()
        slow.pytest_collection_modifyitems(config, [item])
        assert (item.get_closest_marker("slow") is not None) == named
    monkeypatch.setattr(slow, "listed", lambda: {item.nodeid, f"{item.nodeid}[row]"})
    with pytest.raises(pytest.UsageError, match=r"\[row\], which no test is"):
        slow.pytest_collection_modifyitems(config, [item])


def test_no_test_is_marked_by_hand():
    marked = "pytest.mark." + "slow"
    files = [file for file in (slow.ROOT / "tests").rglob("*.py") if file.name != "slow.py"]
    assert [file.name for file in files if marked in file.read_text(encoding="utf-8")] == []
