"""Moments of random programs, of the table of programs and of every activation."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.cases import programs as table
from tests.cases.activations import ACTIVATIONS
from tests.cases.networks import networks
from tests.fuzzer.checking import Host, jax_host, torch_host
from tests.fuzzer.programs import Input, generate_with_dropout, generate_without_gates
from tests.golden.recording import recorded

MODES = ("full", "diagonal", "backward")
DROPOUT = 5  # one in so many random programs has layers of dropout
Case = tuple[str, Callable, list[Input]]  # a name, a function of a framework, and its inputs


def entries(framework: str, programs: int) -> dict[str, Any]:
    """All of them in a framework, in double precision."""
    host = in_double_precision(framework)
    return {
        f"{name}, {mode}": recorded(lambda case=case, mode=mode: _propagated(host, *case, mode))
        for name, *case in cases(host, programs)
        for mode in MODES
    }


def cases(host: Host, programs: int, products: bool = False) -> Iterator[Case]:
    """All functions as a framework spells them; torch's layers as products where it is asked."""
    yield from (random_program(host, seed) for seed in range(programs))
    yield from _table(host, products)
    yield from _activations(host)
    yield from ((f"network {name}", *case) for name, case in networks(host).items())


def in_double_precision(framework: str) -> Host:
    """The framework as random programs run in it."""
    if framework == "pyro":
        import torch

        torch.set_default_dtype(torch.float64)
        return torch_host()
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax_host()


def _propagated(host: Host, function: Callable, inputs: list[Input], mode: str) -> dict[str, Any]:
    values = [
        host.moments(host.array(one.mean), variance=host.array(one.variance))
        if one.covariance is None
        else host.moments(host.array(one.mean), covariance=host.array(one.covariance))
        for one in inputs
    ]
    return numbers_of(host.propagate(function, *values, covariance=mode))


def numbers_of(result: Any) -> dict[str, Any]:
    """The arrays of moments by name."""
    numbers = {"mean": result.mean, "variance": result.variance}
    return numbers if result.covariance is None else {**numbers, "cov": result.covariance}


def random_program(host: Host, seed: int) -> Case:
    """The program of a seed."""
    program = (generate_without_gates if seed % DROPOUT else generate_with_dropout)(seed)
    return f"program {seed}", program.function(host.name), list(program.inputs.values())


def _table(host: Host, products: bool) -> Iterator[Case]:
    rng = np.random.default_rng(7)
    inputs = {
        name: Input(rng.normal(size=shape), 0.1 + rng.random(shape))
        for name, shape in table.SHAPES.items()
    }
    for program in table.programs(_spelled(host, products)):
        chosen = [inputs[letter] for letter in program.inputs]
        yield f"table {program.name}", _with_data(program, host), chosen


def _spelled(host: Host, products: bool) -> table.Host:
    if host.name == "torch" and not products:
        return table.TORCH
    if host.name == "torch":
        import torch

        return table.Host(torch, lambda x, w, b=None: x @ w.T if b is None else x @ w.T + b)
    import jax.numpy as jnp

    return table.Host(jnp, lambda x, w, b=0.0: x @ w.T + b)


def _with_data(program: table.Program, host: Host) -> Callable:
    if not program.data:
        return program.function
    x = host.array(np.array([[1.0, -0.5], [0.3, 2.0]]))
    return lambda *inputs: program.function(x, *inputs)


def _activations(host: Host) -> Iterator[Case]:
    means = np.linspace(-3.0, 3.0, 14).reshape(7, 2)
    root = np.array([[0.8, 0.0], [0.5, 0.6]])
    scales = np.array([1e-3, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0])
    covariance = scales[:, None, None] ** 2 * (root @ root.T)
    given = Input(means, np.zeros_like(means), covariance)
    for case in ACTIVATIONS:
        function = case.torch if host.name == "torch" else case.jax
        yield f"activation {case.name}", function, [given]
