"""Latent sites before the last random map of a program.

Given draws of them, the parameters of every likelihood are functions of Gaussians, so that
what is left of the loss has a closed form that is exact. A mean of it over draws has the
tails that the moments of hidden units leave out, and less noise than draws of all sites.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from moment_calculus.operations.dropout.noise import Noise
from moment_calculus.values import Deferred, Gaussian, Value


def sites_to_draw(parameters: Iterable[Value], latent: Collection[str]) -> frozenset[str]:
    """Return the sites before the last random map; none where all ``latent`` are, or none is."""
    sites = sites_before_the_last_map(parameters)
    return sites if sites and sites < frozenset(latent) else frozenset()


def sites_before_the_last_map(parameters: Iterable[Value]) -> frozenset[str] | None:
    """Return the latent sites given which parameters of distributions are functions of Gaussians.

    None if a mask or other noise that is not Gaussian leads there.
    """
    waiting = [_inside_link(parameter) for parameter in parameters]
    drawn, seen = set[str](), set[int]()
    while waiting:
        value = waiting.pop()
        if value.serial in seen:
            continue
        seen.add(value.serial)
        if isinstance(value.step, Noise):
            return None
        factors = value.step.factors(value)
        for input_index, source in enumerate(value.step.inputs):
            if input_index in factors:
                drawn |= source.sites
            else:
                waiting.append(source)
    return frozenset(drawn)


def _inside_link(parameter: Any) -> Gaussian:
    """Return the Gaussian of which a parameter is a function, component by component."""
    if isinstance(parameter, Deferred):
        return parameter.base
    function = parameter.step.function
    return parameter if function is None else function[0]
