"""Which latent sites a model contracts with an input, and along which of their axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core
from numpyro import handlers

# Primitives after which a value is what it was, of another precision at most.
_SAME = frozenset("convert_element_type copy copy_p optimization_barrier name".split())

Site = tuple[str, tuple[int, ...]]  # its name, and its own axis at each place


def contracted_axes(
    model: Callable, sites: Mapping[str, jax.Array], args: tuple, kwargs: dict
) -> dict[str, int]:
    """The axis, negative, along which each site that is contracted meets an input.

    Args:
        model: NumPyro model, seeded.
        sites: values of its latent sites by name.
        args: arguments of the model.
        kwargs: likewise, by name.

    Returns:
        For each latent site that a linear map contracts, the axis where it does so first.
    """

    def program(values: dict[str, jax.Array]) -> list[jax.Array]:
        with handlers.block():
            substituted = handlers.substitute(model, data=values)
            trace = handlers.trace(substituted).get_trace(*args, **kwargs)
        kinds = ("sample", "deterministic")
        kept = [[s["value"], s.get("fn")] for s in trace.values() if s["type"] in kinds]
        return [leaf for leaf in jax.tree.leaves(kept) if isinstance(leaf, jax.Array)]

    values = dict(sites)
    jaxpr = jax.make_jaxpr(program)(values).jaxpr
    names = sorted(values)  # the order in which JAX flattens dictionaries
    found: dict[str, int] = {}
    aliases = [(name, tuple(range(-values[name].ndim, 0))) for name in names]
    _follow(jaxpr, aliases, found)
    return found


def _follow(
    jaxpr: core.Jaxpr, inputs: Sequence[Site | None], found: dict[str, int]
) -> list[Site | None]:
    """Note what a program contracts, and return which of its outputs are sites."""
    known = {variable: site for variable, site in zip(jaxpr.invars, inputs, strict=True) if site}
    look = lambda v: None if isinstance(v, core.Literal) else known.get(v)  # noqa: E731
    for equation in jaxpr.eqns:
        operands = [look(variable) for variable in equation.invars]
        if any(operands):
            results = _results(equation, operands, found)
            pairs = zip(equation.outvars, results, strict=False)
            known.update((variable, site) for variable, site in pairs if site)
    return [look(variable) for variable in jaxpr.outvars]


def _results(equation: Any, operands: list, found: dict[str, int]) -> list[Site | None]:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        _note(parameters["dimension_numbers"], operands, found)
    if name in _SAME:
        return operands
    if name == "transpose":
        site, order = operands[0]
        return [(site, tuple(order[place] for place in parameters["permutation"]))]
    for inner in core.jaxprs_in_params(parameters):
        if len(inner.invars) == len(operands):  # calls, not the bodies of loops
            return _follow(inner, operands, found)
    return []


def _note(dimensions: Any, operands: list, found: dict[str, int]) -> None:
    contracted, batch = dimensions
    for site, axes, batched in zip(operands, contracted, batch, strict=True):
        if site and len(axes) == 1 and not batched:
            found.setdefault(site[0], site[1][axes[0]])
