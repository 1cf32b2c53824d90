"""Wide layers of full covariance choose their terms in a compiled program as in an eager one."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.functional as F

from pyro_moments import DeterministicELBO, DVIGuide
from pyro_moments.compiled.compilers import inductor, replay
from tests.pyro.compiled.compiling import assert_same, make

ACTIVATIONS = [torch.relu, F.elu]  # with a closed form of their pairs, and without


def network(activation):
    def model(x, y):
        units = [3, 40, 40, 2]
        for n, (rows, columns) in enumerate(zip(units[1:], units[:-1], strict=True)):
            if n:
                x = activation(x)
            prior = dist.Normal(0.0, columns**-0.5).expand([rows, columns]).to_event(2)
            x = F.linear(x, pyro.sample(f"w{n}", prior))
        with pyro.plate("data", len(y)):
            pyro.sample("obs", dist.Normal(x[:, 0], torch.exp(0.5 * x[:, 1])), obs=y)

    return model


@pytest.mark.parametrize(
    ("activation", "backend"), [*((f, replay) for f in ACTIVATIONS), (torch.relu, inductor)]
)
def test_as_in_eager_programs(activation, backend):
    graphs = []

    def noted(graph, inputs):
        graphs.append(graph)
        return backend(graph, inputs)

    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 3, generator=generator), torch.randn(8, generator=generator)
    elbo, model, guide = make(noted), network(activation), DVIGuide()
    for size in (1.0, 10.0):  # other correlations, which need other numbers of terms
        assert_same(elbo, DeterministicELBO(), model, guide, size * x, y)
    (graph,) = graphs
    assert any("moment_calculus" in str(node.target) for node in graph.graph.nodes)
