"""Values and gradients of the golden programs in both frameworks, compared with each other."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.cases.activations import ACTIVATIONS
from tests.cases.networks import networks
from tests.cases.programs import PROGRAMS
from tests.checks.general import combined, gradients_by
from tests.fuzzer.checking import jax_host, torch_host
from tests.fuzzer.programs import Input
from tests.golden import losses, moments
from tests.golden.recording import difference_of_numbers, recorded

TOLERANCE, FLOOR = 1e-10, 1e-15  # relative to the largest element; what cancels leaves rounding
# The gradient by a variance of 2e-8 is E[f (z² − 1)] / 2v, which rounds to 5e-8 in either of them.
TOLERANCES = {"program 7, diagonal": 1e-7, "program 7, backward": 1e-7}
OF_ONE_FRAMEWORK = {
    "activation heaviside": "torch.heaviside takes the value at zero as another input",
    "program 13": "a layer norm of squares, which jnp spells out, is not recognised",
}
ROLES = {"locs": "loc", "scales": "scale", "correlations": "correlation"}


def names(programs: int) -> dict[str, list[str]]:
    """The names of all programs that both frameworks have, by kind."""
    kinds = {
        "random": [f"program {seed}" for seed in range(programs)],
        "table": [f"table {program.name}" for program in PROGRAMS],
        "activation": [f"activation {case.name}" for case in ACTIVATIONS],
        "network": [f"network {name}" for name in networks(torch_host())],
    }
    return {
        **{
            kind: [f"{one}, {mode}" for one in of_kind for mode in moments.MODES]
            for kind, of_kind in kinds.items()
        },
        "losses": list(_cells()),
    }


def covering(programs: int) -> list[str]:
    """Each program in one mode in turn, each model with each guide under one objective in turn.

    Networks come last, in every mode.
    """
    kinds = names(programs)
    of_networks = kinds.pop("network")
    groups: dict[str, list[str]] = {}
    for name in kinds.pop("losses"):
        groups.setdefault(name.rpartition(", ")[0], []).append(name)
    in_turn = [cells[n % len(cells)] for n, cells in enumerate(groups.values())]
    further = [f"categorical, DVIGuide, {title}" for title in losses.FURTHER]
    count = len(moments.MODES)
    modes = [
        name
        for of_kind in kinds.values()
        for n, name in enumerate(of_kind)
        if n % count == n // count % count
    ]
    return [*modes, *dict.fromkeys([*in_turn, *further]), *of_networks]


def difference(name: str) -> str:
    """What differs between the frameworks; nothing if they agree."""
    program = name.rpartition(", ")[0]
    if program in OF_ONE_FRAMEWORK:
        return ""
    if name in _cells():
        cell = _cells()[name]
        runs = [lambda: losses.in_pyro(cell, _name_in_numpyro), lambda: _loss_in_numpyro(cell)]
    else:
        runs = [functools.partial(run, name) for run in (_moments_in_pyro, _moments_in_numpyro)]
    pyro, numpyro = map(recorded, runs)
    kinds = [[text.partition(":")[0] for text in entry["texts"]] for entry in (pyro, numpyro)]
    if kinds[0] != kinds[1]:
        return f"\n  {pyro['texts']}\n  {numpyro['texts']}"
    tolerance = TOLERANCES.get(name, TOLERANCE)
    return difference_of_numbers(pyro["numbers"], numpyro["numbers"], tolerance, FLOOR)


@functools.cache
def _cells() -> dict[str, losses.Cell]:
    return dict(losses.cells())


def _name_in_numpyro(parameter: str) -> str:
    """``w_auto_loc`` of ``locs.w_unconstrained``: both frameworks then draw the same values."""
    owner, _, name = parameter.partition(".")
    return f"{name.removesuffix('_unconstrained')}_auto_{ROLES[owner]}"


def _loss_in_numpyro(cell: losses.Cell) -> dict[str, Any]:
    from tests.checks.jaxprs import by_numpy

    return losses.in_numpyro(cell, by_numpy)


@functools.cache
def _listed(framework: str) -> dict[str, tuple[Callable, list[Input]]]:
    """The table and the activations as a framework spells them."""
    host = torch_host() if framework == "pyro" else jax_host()
    return {name: case for name, *case in moments.cases(host, programs=0, products=True)}


def _case(name: str, framework: str) -> tuple[Callable, list[Input]]:
    if not name.startswith("program "):
        return _listed(framework)[name]
    host = torch_host() if framework == "pyro" else jax_host()
    _, *case = moments.random_program(host, int(name.split()[1]))
    return case


def _arrays(inputs: list[Input]) -> list[np.ndarray]:
    """Mean and spread of every input, one after the other."""
    return [
        array
        for one in inputs
        for array in (one.mean, one.variance if one.covariance is None else one.covariance)
    ]


def _propagated(front_end: Any, name: str, arrays: Sequence[Any], framework: str) -> dict:
    """Moments of a program whose inputs have other arrays of means and spreads."""
    program, _, mode = name.rpartition(", ")
    function, inputs = _case(program, framework)
    given = [
        front_end.Moments(mean, **{"variance" if one.covariance is None else "covariance": spread})
        for one, mean, spread in zip(inputs, arrays[::2], arrays[1::2], strict=True)
    ]
    numbers = moments.numbers_of(front_end.propagate(function, *given, covariance=mode))
    if numbers["mean"].shape[-1:] == (1,):
        numbers.pop("cov", None)  # of a single feature it is the variance
    return numbers


def _moments_in_pyro(name: str) -> dict[str, Any]:
    import torch

    import pyro_moments

    _, inputs = _case(name.rpartition(", ")[0], "pyro")
    leaves = [torch.tensor(array).requires_grad_() for array in _arrays(inputs)]
    numbers = _propagated(pyro_moments, name, leaves, "pyro")
    gradients = gradients_by(leaves, combined(numbers))
    return {**{key: value.detach() for key, value in numbers.items()}, **_named(gradients, inputs)}


def _moments_in_numpyro(name: str) -> dict[str, Any]:
    import jax

    import numpyro_moments
    from tests.checks.jaxprs import by_numpy

    def total(arrays: list[Any]) -> tuple[Any, dict[str, Any]]:
        numbers = _propagated(numpyro_moments, name, arrays, "numpyro")
        return combined(numbers), numbers

    _, inputs = _case(name.rpartition(", ")[0], "numpyro")
    arrays = list(map(jax.numpy.asarray, _arrays(inputs)))
    gradients, numbers = by_numpy(jax.grad(total, has_aux=True))(arrays)
    return {**numbers, **_named(gradients, inputs)}


def _named(gradients: Sequence[Any], inputs: list[Input]) -> dict[str, Any]:
    """Gradients by name; those by a covariance are symmetric, whichever triangle was read."""
    spreads = [spread for one in inputs for spread in (None, one.covariance)]
    return {
        f"gradient {i}": gradient if spread is None else (gradient + gradient.mT) / 2
        for i, (gradient, spread) in enumerate(zip(gradients, spreads, strict=True))
    }
