"""Random programs of fixed seeds, and those that were wrong once, in both hosts."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import torch

from tests.fuzzer.checking import jax_host, torch_host, truth, verdict
from tests.fuzzer.operations import OPERATIONS
from tests.fuzzer.programs import generate, generate_with_dropout
from tests.fuzzer.regressions import REGRESSIONS, Regression

HOSTS = {"torch": torch_host(), "jax": jax_host()}
# How many programs: compiling one for JAX takes as long as fifty of them in torch.
COUNTS = {("torch", "full"): 100, ("torch", "diagonal"): 60, ("jax", "full"): 7}
COUNTS["jax", "diagonal"] = 5


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def verdicts(host: str, mode: str) -> list:
    return [verdict(generate(seed), HOSTS[host], mode) for seed in range(COUNTS[host, mode])]


@pytest.mark.parametrize(("host", "mode"), COUNTS)
def test_random_programs(host, mode):
    """Right, warned or refused, and most of them accepted."""
    found = verdicts(host, mode)
    failed = {seed: one for seed, one in enumerate(found) if one.failed}
    assert failed == {}, "\n".join(generate(seed).described(host) for seed in failed)
    assert sum(one.accepted for one in found) >= 0.8 * len(found)


@pytest.mark.parametrize(("host", "count"), [("torch", 25), ("jax", 3)])
def test_random_programs_with_dropout(host, count):
    """Over all masks: none wrong, and most of them accepted."""
    programs = list(map(generate_with_dropout, range(count)))
    found = [verdict(program, HOSTS[host]) for program in programs]
    pairs = zip(programs, found, strict=True)
    assert [program.described(host) for program, one in pairs if one.failed] == []
    assert sum(one.accepted for one in found) >= 0.8 * count


@pytest.mark.parametrize(
    ("row", "host", "mode"),
    [
        pytest.param(row, host, mode, id=f"{row.name}-{host}-{mode}")
        for row in REGRESSIONS
        for host in row.hosts
        for mode in row.modes
    ],
)
def test_regression(row: Regression, host: str, mode: str):
    """In JAX without the weighted sum, of which one more program would be compiled."""
    found = verdict(row.program(), HOSTS[host], mode, weighted=host == "torch")
    assert found.kind in row.verdicts


def test_programs_use_every_operation():
    used = set().union(*(generate(seed).operations() for seed in range(500)))
    assert used == set(OPERATIONS)


def test_the_truth_is_that_of_samples():
    """Of a program in which every element depends on every input."""
    program = Regression(
        "a map", {"W": (2, 3), "s": ()}, "y = torch.softmax(W, 0).T @ W * s"
    ).program()
    expected, generator = truth(program), torch.Generator().manual_seed(0)
    inputs = [
        torch.as_tensor(one.mean)
        + torch.as_tensor(one.variance).sqrt()
        * torch.randn(100_000, *one.mean.shape, generator=generator, dtype=torch.float64)
        for one in program.inputs.values()
    ]
    samples = torch.vmap(program.function("torch"))(*inputs).reshape(100_000, -1)
    scale = np.sqrt(np.outer(*2 * [np.diagonal(expected.covariance)]))
    assert np.abs((samples.T.cov().numpy() - expected.covariance) / scale).max() < 0.02


SUM = Regression(
    "a sum",
    {"W": (2, 2)},
    "y = torch.tanh(W @ {A})",
    constants={"A": np.array([[0.0, 2.0], [1.0, 0.0]])},
)


def spoiled(part: str, mode: str = "full") -> str:
    """The verdict where one part of the moments is a hundredth off."""

    def propagate(function, *inputs, covariance):
        result = HOSTS["torch"].propagate(function, *inputs, covariance=covariance)
        if getattr(result, part) is not None:
            setattr(result, part, getattr(result, part) * 1.01)
        return result

    host = dataclasses.replace(HOSTS["torch"], propagate=propagate)
    return verdict(SUM.program(), host, mode).kind


@pytest.mark.parametrize("part", ["mean", "variance", "covariance"])
def test_wrong_moments_are_found(part):
    assert spoiled(part) == "wrong"


def test_wrong_variances_are_found_in_diagonal_mode():
    assert spoiled("variance", mode="diagonal") == "wrong"


def test_wrong_dependence_of_the_batch_is_found():
    """By the weighted sum alone: one number shared by all elements, taken for one of each."""

    def propagate(function, *inputs, covariance):
        result = HOSTS["torch"].propagate(function, *inputs, covariance=covariance)
        if result.mean.ndim == 0:
            result.variance = result.variance / 2
        return result

    host = dataclasses.replace(HOSTS["torch"], propagate=propagate)
    found = verdict(Regression("shared", {"s": ()}, "y = s.expand(2, 1)").program(), host)
    assert (found.kind, found.reason[:12]) == ("wrong", "weighted sum")


def test_an_exception_is_a_crash():
    def propagate(*_, **__):
        raise IndexError("no such axis")

    host = dataclasses.replace(HOSTS["torch"], propagate=propagate)
    assert verdict(SUM.program(), host).kind == "crashed"


def test_the_printed_program_is_the_program():
    program = generate(3)
    text = program.described("torch")
    assert text.startswith("# seed 3\n")
    assert all(f"{name} = Moments(" in text for name in program.inputs)
    assert program.source("torch") in text
