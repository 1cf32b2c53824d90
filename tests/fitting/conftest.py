"""The fixture of all tests of fits: one of the frameworks, without parameters of other tests."""

from __future__ import annotations

import pytest

from tests.fitting.models import HOSTS, fresh


@pytest.fixture(params=HOSTS)
def host(request):
    return fresh(request.param)
