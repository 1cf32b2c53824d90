"""Transforms of Pyro's automatic guides that mix coordinates, with the moments of their values.

A simplex, an ordered vector and a Cholesky factor of correlations are made by operations whose
joint moments are not known one by one, but are known of the whole transform.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from pyro import poutine
from pyro.infer.autoguide import AutoContinuous, AutoGuideList, AutoNormal
from torch.distributions import biject_to, constraints, transforms

from moment_calculus.operations import catalogue as ops
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.sites.terms import POSTERIORS

_GUIDES = (AutoGuideList, AutoNormal, AutoContinuous)


class _Mixing(constraints.Constraint):
    """A support, of which ``biject_to`` gives the transform with moments."""

    def __init__(self, support: Any) -> None:
        self.support, self.event_dim = support, support.event_dim

    def check(self, value: torch.Tensor) -> torch.Tensor:
        return self.support.check(value)


@biject_to.register(_Mixing)
class _WithMoments(transforms.Transform):
    """The transform to a support, also of random coordinates."""

    bijective = True

    def __init__(self, constraint: _Mixing) -> None:
        super().__init__()
        self.plain = biject_to(constraint.support)
        self.domain, self.codomain = self.plain.domain, self.plain.codomain

    def _call(self, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, MomentTensor):
            return self.plain(x)
        coordinates: Any = x.value
        return MomentTensor(ops.on_support(_mixing(self.plain), coordinates.gaussian()))

    def _inverse(self, y: torch.Tensor) -> torch.Tensor:
        return self.plain.inv(y)

    def log_abs_det_jacobian(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not isinstance(y, MomentTensor):
            return self.plain.log_abs_det_jacobian(x, y)
        image = ops.image_of(y.value)
        assert image is not None, "a value that this transform made"
        return image.expected_log_slope

    def forward_shape(self, shape: Any) -> Any:
        return self.plain.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.plain.inverse_shape(shape)


def _mixing(transform: Any) -> Any:
    """Return the support of a transform that mixes coordinates; None of other transforms."""
    return POSTERIORS.mixed_support([transform], transform.codomain.event_dim)


class _Prior:
    """A model's distribution, by which a guide looks up the transform to its support."""

    def __init__(self, fn: Any) -> None:
        self._fn, self.support = fn, _Mixing(fn.support)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)


@contextmanager
def transforms_with_moments(guide: Any, args: tuple, kwargs: dict) -> Iterator[None]:
    """Let Pyro's automatic guides transform coordinates with their moments."""
    unwrapped = poutine.unwrap(guide)
    modules = [*unwrapped.modules()] if isinstance(unwrapped, torch.nn.Module) else []
    changed: list[tuple[dict, Any]] = []
    for module in modules:
        if isinstance(module, _GUIDES):
            if module.prototype_trace is None:  # a list's before those of its parts, which use it
                module._setup_prototype(*args, **kwargs)
            changed += _mixing_sites(module.prototype_trace)
    joint = [module for module in modules if hasattr(module, "gaussian_parameters")]
    try:
        for site, fn in changed:
            site["fn"] = _Prior(fn)
        with ExitStack() as stack:
            for module in joint:
                stack.enter_context(_mixing_supports(module, args, kwargs))
            yield
    finally:
        for site, fn in changed:
            site["fn"] = fn


@contextmanager
def _mixing_supports(guide: Any, args: tuple, kwargs: dict) -> Iterator[None]:
    """Give the sites of a Gaussian guide supports whose transforms keep moments."""
    if guide._sites is None:
        guide._setup_prototype(*args, **kwargs)
    plain = guide._sites
    mixing = [_mixing(biject_to(site.support)) is not None for site in plain]
    guide._sites = tuple(
        site._replace(support=_Mixing(site.support)) if mixes else site
        for site, mixes in zip(plain, mixing, strict=True)
    )
    try:
        yield
    finally:
        guide._sites = plain


def _mixing_sites(trace: Any) -> list[tuple[dict, Any]]:
    """Return nodes of a trace, and their distributions, whose support mixes coordinates."""
    nodes = ((site, site["fn"]) for _, site in trace.iter_stochastic_nodes())
    pairs = [(site, fn, _transform_to(fn)) for site, fn in nodes]
    return [(site, fn) for site, fn, to in pairs if to is not None and _mixing(to) is not None]


def _transform_to(fn: Any) -> Any:
    """Return the transform to a support; None where Pyro knows none."""
    try:
        return biject_to(fn.support)
    except NotImplementedError:  # the guide, or its part for the site, does not ask for it
        return None
