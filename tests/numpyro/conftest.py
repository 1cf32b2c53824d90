"""Claims of this folder are about moments and losses: JAX's operations need not be compiled."""

from __future__ import annotations

import pytest

from tests.checks import small_programs

OF_COMPILING = {"test_programs.py", "test_lowering.py"}  # what is compiled, and how often


@pytest.fixture(autouse=True)
def _operations_of_the_front_end_by_numpy(request):
    if request.path.name in OF_COMPILING:
        yield
        return
    with small_programs.by_numpy():
        yield
