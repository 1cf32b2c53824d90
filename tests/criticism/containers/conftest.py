"""Containers are compared with closed forms in double precision."""

import pytest

from tests.criticism.containers.programs import HOSTS, doubles, fresh


@pytest.fixture(params=HOSTS)
def host(request):
    """Each framework, in double precision."""
    with doubles(fresh(request.param)):
        yield HOSTS[request.param]
