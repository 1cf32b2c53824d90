"""Compiled programs are kept: for equal ones, for other processes, and by model and guide."""

import warnings
from types import SimpleNamespace

import pyro.distributions as dist
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from pyro_moments import DVIGuide
from pyro_moments._host import compile_graph
from pyro_moments.compiled import compiled_loss
from pyro_moments.compiled.compilers import inductor
from tests.pyro import models
from tests.pyro.compiled.compiling import make, programs


def test_the_same_program_is_compiled_once(tmp_path, monkeypatch):
    from torch._dynamo.utils import counters  # takes seconds

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.linspace(-1.0, 1.0, 48 * 48).reshape(48, 48)
    graph = make_fx(lambda x: [x @ x])(x)  # a call of a library: no C++ to compile
    before = counters["inductor"].copy()
    for _ in range(2):
        torch.testing.assert_close(inductor(graph, [x])(x)[0], x @ x)
    found = counters["inductor"] - before
    assert (found["fxgraph_cache_miss"], found["fxgraph_cache_hit"]) == (1, 1)
    assert found["fxgraph_cache_bypass"] == 0


def test_an_option_that_the_compiler_does_not_have_is_left_out(monkeypatch):
    """The others hold while it compiles."""
    from torch._inductor import compile_fx, config

    known = []

    def compiler(graph, inputs, **_):
        known.append(config.size_asserts)
        return SimpleNamespace(current_callable=lambda tensors: graph(*tensors))

    monkeypatch.setattr(compile_fx, "compile_fx_inner", compiler)
    x = torch.linspace(-1.0, 1.0, 5)
    graph = make_fx(lambda x: [x.cos() * 2.5])(x)
    run = compile_graph(graph, [x], {"size_asserts": False, "of_another_version": True})
    torch.testing.assert_close(run([x])[0], x.cos() * 2.5)
    assert known == [False]
    assert config.size_asserts


def test_one_objective_serves_many_guides(monkeypatch):
    """Each has programs of its own; those of the oldest make room and are captured again."""
    monkeypatch.setattr(compiled_loss, "KEPT", 3)
    x, y = models.data()
    model, elbo = models.regression(lambda f: dist.Normal(f, 0.5)), make()
    guides = [DVIGuide() for _ in range(compiled_loss.LIMIT + 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for guide in guides:
            elbo.loss(model, guide, x, y)
    kept = programs(elbo)
    assert len(kept) == 3
    elbo.loss(model, guides[-1], x[:5], y[:5])  # the newest may have another one
    assert programs(elbo)[:3] == kept
    elbo.loss(model, guides[0], x, y)
    assert programs(elbo)[:2] == kept[1:]


def test_a_program_with_gradients_gives_the_loss_alone():
    x, y = models.data()
    model, elbo, guide = models.regression(lambda f: dist.Normal(f, 0.5)), make(), DVIGuide()
    trained = elbo.loss_and_grads(model, guide, x, y)
    kept = programs(elbo)
    assert elbo.loss(model, guide, x, y) == pytest.approx(trained, rel=1e-6)
    with torch.no_grad():
        assert not elbo.differentiable_loss(model, guide, x, y).requires_grad
    assert programs(elbo) == kept
