"""Marks that several files share."""

import pytest

# For tests of what both hosts share, where other tests assert that the hosts agree.
IN_PYRO = pytest.mark.parametrize("host", ["pyro"], indirect=True)
