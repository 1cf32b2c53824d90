"""What the tests in JAX share."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture
def double_precision_in_jax():
    with jax.enable_x64(True):
        yield
