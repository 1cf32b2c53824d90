"""Detect random numbers that a model draws outside its sites: its ELBO would be random.

The keys with which sites are drawn are marked. In a program that is cut at the marks, no
output may depend on the model's key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from jax.ad_checkpoint import checkpoint_name
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro.primitives import Messenger

from moment_calculus.errors import calling_line
from moment_calculus.hosts.wording import randomness_outside_sites
from numpyro_moments.evaluation.user_line import line_of

_MARK = "key of a site"


class Declared(Messenger):
    """Marks the keys that draw sites, subsamples and initial values of parameters."""

    def __init__(self, fn: Callable) -> None:
        super().__init__(fn)
        self.parameters = 0  # number of parameters that are being made

    def process_message(self, msg: Any) -> None:
        """Mark the key of a message, and note the user's line of a site for later errors."""
        if msg["type"] in ("sample", "deterministic"):
            msg["line"] = calling_line()
        if msg["type"] in ("sample", "plate") and msg["kwargs"].get("rng_key") is not None:
            msg["kwargs"]["rng_key"] = checkpoint_name(msg["kwargs"]["rng_key"], _MARK)
        elif msg["type"] == "prng_key" and self.parameters and msg["value"] is not None:
            msg["value"] = checkpoint_name(msg["value"], _MARK)
        self.parameters += msg["type"] == "param"

    def postprocess_message(self, msg: Any) -> None:
        """Note that a parameter has been made."""
        self.parameters -= msg["type"] == "param"


def refuse_silent_draws(program: Any, outputs: Collection[int]) -> None:
    """Raise if outputs depend on a program's key other than through sites.

    ``program`` is an open jaxpr whose first input is the model's key; ``outputs`` are the
    indices of the outputs that must not be random, given the sites.
    """
    wanted = [place in outputs for place in range(len(program.outvars))]
    live, used = dce_jaxpr(_cut(program), wanted)
    if used[0]:
        culprit = _first_draw(live, live.invars[0])
        place = line_of(culprit)
        name = str(culprit.params.get("name", culprit.primitive.name)).strip("_")
        where = f"{place[0]}:{place[1]}" if place else "unknown"
        raise randomness_outside_sites(f"jax.random.{name}", where, framework="NumPyro")


def _cut(program: core.Jaxpr) -> core.Jaxpr:
    return program.replace(eqns=[_cut_equation(equation) for equation in program.eqns])


def is_marked(equation: Any) -> bool:
    """Return whether an equation marks the key of a site."""
    return equation.primitive.name == "name" and equation.params["name"] == _MARK


def _cut_equation(equation: Any) -> Any:
    if is_marked(equation):
        return equation.replace(invars=[])
    if not any(core.jaxprs_in_params(equation.params)):
        return equation
    return equation.replace(params={k: _inside(v, _cut) for k, v in equation.params.items()})


def _inside(part: Any, change: Callable[[core.Jaxpr], core.Jaxpr]) -> Any:
    if isinstance(part, core.Jaxpr):
        return change(part)
    if isinstance(part, core.ClosedJaxpr):
        return part.replace(jaxpr=change(part.jaxpr))
    if type(part) in (tuple, list):  # e.g. the branches of a condition, but no named tuples
        return type(part)(_inside(item, change) for item in part)
    return part


def _first_draw(program: core.Jaxpr, key: Any) -> Any:
    """Return the first equation that draws random bits from a key."""
    reached = {key}
    for equation in program.eqns:
        if any(not isinstance(v, core.Literal) and v in reached for v in equation.invars):
            reached.update(equation.outvars)
            if draws(equation):
                return equation
    return program.eqns[-1]


def draws(equation: Any) -> bool:
    """Return whether an equation, or a program inside it, makes random bits."""
    inner = core.jaxprs_in_params(equation.params)
    return "bits" in equation.primitive.name or any(draws(e) for jaxpr in inner for e in jaxpr.eqns)
