"""Choices of which a program may see that they are none."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.families.elementary import capped_exp, infinite_where_capped
from moment_calculus.numerics.execution import known_all_false


def test_plain_arrays_are_looked_at():
    for convert in (np.asarray, torch.as_tensor):
        assert known_all_false(convert([False, False]))
        assert not known_all_false(convert([False, True]))


def test_nobody_looks_at_what_is_traced():
    seen = []
    torch.func.vmap(lambda x: (seen.append(known_all_false(x > 1)), x)[1])(torch.zeros(3))
    assert seen == [False]
    assert not known_all_false(jnp.asarray([False]))


@pytest.mark.parametrize("function", [capped_exp, lambda x: infinite_where_capped(capped_exp(x))])
def test_an_exponential_that_is_held_changes_no_other(function):
    """With and without the choice: values and gradients."""
    x = torch.tensor([-200.0, -1.0, 0.0, 3.0, float("nan")], requires_grad=True)
    held = torch.cat([x, torch.tensor([500.0])])
    plain, chosen = function(x), function(held)
    torch.testing.assert_close(chosen[:-1], plain, rtol=0, atol=0, equal_nan=True)
    slopes = [torch.autograd.grad(y[:4].sum(), x)[0] for y in (plain, chosen)]
    torch.testing.assert_close(*slopes, rtol=0, atol=0, equal_nan=True)
    np.testing.assert_array_equal(plain[:4].detach(), x[:4].detach().exp())
