"""A compiled program is kept, for the next one that is the same and for other processes."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx

from pyro_moments.compiled.compilers import inductor


@pytest.mark.slow  # a C++ compiler takes seconds
def test_the_same_program_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.linspace(-1.0, 1.0, 7)
    graph = make_fx(lambda x: [x.sin() + 1.25])(x)
    before = counters["inductor"].copy()
    for _ in range(2):
        torch.testing.assert_close(inductor(graph, [x])(x)[0], x.sin() + 1.25)
    found = counters["inductor"] - before
    assert (found["fxgraph_cache_miss"], found["fxgraph_cache_hit"]) == (1, 1)
    assert found["fxgraph_cache_bypass"] == 0
