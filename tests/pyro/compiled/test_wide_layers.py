"""Wide layers of full covariance choose their terms in a compiled program as in an eager one."""

import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.functional as F

from pyro_moments import DeterministicELBO, DVIGuide
from pyro_moments.compiled.compilers import inductor, replay
from tests.pyro.compiled import compiling

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


def narrow(x, y):
    """No more than the claims need: every operation costs Inductor and the compiler of C++ time."""
    for n, columns in enumerate((3, 40)):
        prior = dist.Normal(0.0, columns**-0.5).expand([40, columns]).to_event(2)
        x = torch.relu(F.linear(x, pyro.sample(f"w{n}", prior)))
    mean = pyro.sample("b", dist.Normal(0.0, 1.0)) * x.mean(-1)
    with pyro.plate("data", len(y)):
        pyro.sample("obs", dist.Normal(mean, 0.3), obs=y)


def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 3, generator=generator), torch.randn(8, generator=generator)


def noting(backend, graphs):
    def noted(graph, inputs):
        graphs.append(graph)
        return backend(graph, inputs)

    return noted


def assert_chooses_terms(graph):
    assert any("moment_calculus" in str(node.target) for node in graph.graph.nodes)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_as_in_eager_programs(activation):
    graphs = []
    elbo, model, guide = compiling.make(noting(replay, graphs)), network(activation), DVIGuide()
    x, y = data()
    for size in (1.0, 10.0):  # other correlations, which need other numbers of terms
        compiling.assert_same(elbo, DeterministicELBO(), model, guide, size * x, y)
    (graph,) = graphs
    assert_chooses_terms(graph)


def scalar_inductor(graph, inputs):
    """Without vector instructions, for which Inductor writes each loop twice."""
    from torch._inductor import config  # takes seconds

    with config.patch({"cpp.simdlen": 1}):
        return inductor(graph, inputs)


def drawn(elbo, guide, *args):
    """Loss and gradients for three draws by the same random numbers."""
    pyro.set_rng_seed(3)
    return [compiling.gradients(elbo, narrow, guide, *args) for _ in range(3)]


def test_inductor_equals_the_eager_program(double_precision):
    """At other parameters and numbers of terms too, and with the random numbers of each call."""
    graphs = []
    options = {"sample_sites": ["b"]}
    guide, elbo = (
        DVIGuide(init_scale=0.2),
        compiling.make(noting(scalar_inductor, graphs), **options),
    )
    eager, (x, y) = DeterministicELBO(**options), data()
    compiling.gradients(elbo, narrow, guide, x, y)  # which captures, and draws for itself
    for size in (1.0, 10.0):
        found = drawn(elbo, guide, size * x, y)
        assert len({loss for loss, _ in found}) == 3
        for one, other in zip(found, drawn(eager, guide, size * x, y), strict=True):
            compiling.assert_equal(one, other)
        compiling.perturb(guide)
    assert len(compiling.programs(elbo)) == 1
    assert_chooses_terms(*graphs)
