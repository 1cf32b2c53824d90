"""Functions that wait for one another get loops of their own where arrays are large."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import metrics
from torch.fx.experimental.proxy_tensor import make_fx

from pyro_moments.compiled.chains import LARGE
from pyro_moments.compiled.compilers import inductor


def scales(x):
    """A chain with two users, as a scale and its logarithm in a divergence are."""
    scale = torch.nn.functional.softplus(x)
    return [scale, scale * scale, scale.log().sum()]


@pytest.mark.parametrize(("size", "loops"), [(LARGE, 2), (LARGE // 2, 1)])
def test_chains_of_large_arrays_are_apart(size, loops):
    x = torch.linspace(-4.0, 4.0, size)
    metrics.reset()
    with torch._inductor.config.patch(fx_graph_cache=False):
        run = inductor(make_fx(scales)(x), [x])
    assert metrics.generated_kernel_count == loops
    for found, right in zip(run(x), scales(x), strict=True):
        torch.testing.assert_close(found, right)
