"""Find the latent sites that a model contracts with an input, and the contracted axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers

from guides.families.mc_dropout import WeightSites, prior_scale
from guides.numpyro.supports import is_latent
from moment_calculus.numerics.private_apis import (
    is_constant,
    programs_inside,
    restricted,
)

# Primitives that leave a value as it is, except for its precision.
_SAME = frozenset("convert_element_type copy copy_p optimization_barrier name".split())

Site = tuple[str, tuple[int, ...]]  # its name, and which of its own axes is at each place


def weights_of(
    model: Callable, trace: Mapping[str, dict], args: tuple, kwargs: dict
) -> WeightSites:
    """Trace a seeded model to find which latent sites of ``trace`` linear maps contract."""
    latent = {name: site["value"] for name, site in trace.items() if is_latent(site)}
    params = {n: s["value"] for n, s in trace.items() if s["type"] == "param" and _is_array(s)}

    def program(latent: dict[str, jax.Array], params: dict[str, Any]) -> Any:
        with handlers.block():
            substituted = handlers.substitute(model, data={**params, **latent})
            sites = handlers.trace(substituted).get_trace(*args, **kwargs)
        scales = [prior_scale(sites[name]["fn"]) for name in sorted(latent)]
        kinds = ("sample", "deterministic")
        outputs = [[s["value"], s.get("fn")] for s in sites.values() if s["type"] in kinds]
        leaves = [leaf for leaf in jax.tree.leaves(outputs) if isinstance(leaf, jax.Array)]
        return [0.0 if scale is None else scale for scale in scales], leaves

    jaxpr = jax.make_jaxpr(program)(latent, params).jaxpr
    names = sorted(latent)  # JAX flattens dictionaries in this order
    contracted_axes: dict[str, int] = {}
    aliases = [(name, tuple(range(-jnp.ndim(latent[name]), 0))) for name in names]
    _follow_sites(jaxpr, [*aliases, *[None] * (len(jaxpr.invars) - len(names))], contracted_axes)
    learnt = (name for place, name in enumerate(names) if _depends(jaxpr, place))
    return WeightSites(contracted_axes, frozenset(learnt))


def _is_array(site: dict) -> bool:
    return all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(site["value"]))


def _depends(jaxpr: Any, place: int) -> bool:
    """Return whether any output of a program depends on its input at ``place``."""
    wanted = [number == place for number in range(len(jaxpr.outvars))]
    return any(restricted(jaxpr, wanted)[1])


def _follow_sites(
    jaxpr: Any, inputs: Sequence[Site | None], contracted_axes: dict[str, int]
) -> list[Site | None]:
    """Record what a program contracts in ``contracted_axes``; return the sites of its outputs."""
    sites = {variable: site for variable, site in zip(jaxpr.invars, inputs, strict=True) if site}
    site_of = lambda v: None if is_constant(v) else sites.get(v)  # noqa: E731
    for equation in jaxpr.eqns:
        operands = [site_of(variable) for variable in equation.invars]
        if any(operands):
            results = _results(equation, operands, contracted_axes)
            pairs = zip(equation.outvars, results, strict=False)
            sites.update((variable, site) for variable, site in pairs if site)
    return [site_of(variable) for variable in jaxpr.outvars]


def _results(equation: Any, operands: list, contracted_axes: dict[str, int]) -> list[Site | None]:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        _record_contraction(parameters["dimension_numbers"], operands, contracted_axes)
    if name in _SAME:
        return operands
    if name == "transpose":
        site, order = operands[0]
        return [(site, tuple(order[place] for place in parameters["permutation"]))]
    for inner in programs_inside(equation):
        if len(inner.invars) == len(operands):  # calls, not the bodies of loops
            return _follow_sites(inner, operands, contracted_axes)
    return []


def _record_contraction(dimensions: Any, operands: list, contracted_axes: dict[str, int]) -> None:
    contracted, batch = dimensions
    for site, axes, batched in zip(operands, contracted, batch, strict=True):
        if site and len(axes) == 1 and not batched:
            contracted_axes.setdefault(site[0], site[1][axes[0]])
