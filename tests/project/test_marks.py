"""``fast_rows`` and ``slow_rows`` divide a table between the suites, and name rows that it has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import conftest


@pytest.mark.parametrize("row", ["one", "two"])
def test_rows_are_slow_by_their_name(row, request):
    item = request.node
    for mark, slow in (
        (pytest.mark.fast_rows("o*"), row == "two"),
        (pytest.mark.fast_rows("one", "t*"), False),
        (pytest.mark.slow_rows("*wo"), row == "two"),
        (pytest.mark.slow_rows("*"), True),
    ):
        item.own_markers.clear()
        item.add_marker(mark)
        conftest.pytest_itemcollected(item)
        assert (item.get_closest_marker("slow") is not None) == slow


@pytest.mark.parametrize("row", ["one"])
@pytest.mark.parametrize("mark", ["fast_rows", "slow_rows"])
def test_a_name_that_no_row_has_is_refused(mark, row, request):
    request.node.add_marker(getattr(pytest.mark, mark)("*-one", "three"))
    with pytest.raises(pytest.UsageError, match="has no row 'three'"):
        conftest.pytest_collection_modifyitems(SimpleNamespace(args=["tests"]), [request.node])
