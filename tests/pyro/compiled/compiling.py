"""Compiled and eager ELBOs side by side."""

import pytest
import torch
from pyro import poutine

from pyro_moments import DeterministicELBO
from pyro_moments.compiled.compilers import replay

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-10}


def make(backend=replay, **options):
    """A compiled ELBO; most tests replay the captured operations."""
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
    expected = gradients(eager, model, guide, *args)
    assert_equal(gradients(elbo, model, guide, *args), expected)


def assert_equal(found, expected):
    """Of two losses, each with its gradients."""
    tolerance = TOLERANCE[torch.get_default_dtype()]
    (loss, slopes), (known, known_slopes) = found, expected
    assert loss == pytest.approx(known, rel=tolerance)
    assert slopes.keys() == known_slopes.keys()
    assert slopes
    for name, slope in known_slopes.items():
        assert (slopes[name] - slope).abs().max() <= 3 * tolerance * slope.abs().max()


def perturb(guide):
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def programs(elbo):
    return [program for found in elbo.compiled.programs.values() for program in found]
