"""Compiled and eager ELBOs side by side."""

from __future__ import annotations

import pytest
import torch
from pyro import poutine

from pyro_moments import DeterministicELBO
from pyro_moments.compiled.compilers import replay

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-10}


def make(backend=replay, **options):
    """A compiled ELBO; most tests replay the captured operations, for compiling is slow."""
    elbo = DeterministicELBO(compiled=True, **options)
    elbo.compiled.backend = backend
    return elbo


def gradients(elbo, model, guide, *args):
    """The loss and the gradients of all parameters, as SVI gets them."""
    with poutine.trace(param_only=True) as capture:
        loss = elbo.loss_and_grads(model, guide, *args)
    leaves = {n: site["value"].unconstrained() for n, site in capture.trace.nodes.items()}
    result = {name: leaf.grad.clone() for name, leaf in sorted(leaves.items())}
    for leaf in leaves.values():
        leaf.grad = None
    return loss, result


def assert_same(elbo, eager, model, guide, *args):
    tolerance = TOLERANCE[torch.get_default_dtype()]
    expected, slopes = gradients(eager, model, guide, *args)
    loss, found = gradients(elbo, model, guide, *args)
    assert loss == pytest.approx(expected, rel=tolerance)
    assert found.keys() == slopes.keys()
    assert found
    for name, slope in slopes.items():
        assert (found[name] - slope).abs().max() <= 3 * tolerance * slope.abs().max()


def programs(elbo):
    return [program for found in elbo.compiled.programs.values() for program in found]
