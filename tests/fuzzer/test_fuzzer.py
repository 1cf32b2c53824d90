"""Random programs of fixed seeds, and those that were wrong once, in both hosts."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.checks.jaxprs import by_numpy
from tests.fuzzer.backwards import BACKWARDS
from tests.fuzzer.checking import jax_host, torch_host, truth, verdict
from tests.fuzzer.operations import OPERATIONS
from tests.fuzzer.programs import generate, generate_with_dropout
from tests.fuzzer.regressions import REGRESSIONS, Regression

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")
HOSTS = {"torch": torch_host(), "jax": jax_host(by_numpy)}


@pytest.mark.parametrize(
    ("make", "mode", "first", "end"),
    [
        (generate, "full", 160, 190),
        (generate, "full", 30, 100),
        (generate, "backward", 0, 30),
        (generate, "backward", 30, 100),
        (generate, "diagonal", 0, 60),
        (generate_with_dropout, "full", 0, 25),
        (generate_with_dropout, "backward", 0, 15),
    ],
)
def test_random_programs(make, mode, first, end):
    """Right, warned or refused, and most of them accepted; in JAX, tests/golden compares them."""
    programs = list(map(make, range(first, end)))
    verdicts = [verdict(program, HOSTS["torch"], mode) for program in programs]
    pairs = zip(programs, verdicts, strict=True)
    assert [program.described("torch") for program, one in pairs if one.failed] == []
    assert sum(one.accepted for one in verdicts) >= 0.8 * len(verdicts)


@pytest.mark.parametrize(
    ("row", "host", "mode"),
    [
        pytest.param(row, host, mode, id=f"{row.name}-{host}-{mode}")
        for row in [*REGRESSIONS, *BACKWARDS]
        for host in row.hosts
        for mode in row.modes
    ],
)
def test_regression(row: Regression, host: str, mode: str):
    """In JAX without the weighted sum, of which one more program would be traced."""
    found = verdict(row.program(), HOSTS[host], mode, weighted=host == "torch")
    assert found.kind in row.verdicts


def test_programs_use_every_operation():
    left = set(OPERATIONS)
    for seed in range(500):
        left -= set(generate(seed).operations())
        if not left:
            return
    assert left == set()


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
    assert spoiled(part, mode="diagonal") == ("right" if part == "covariance" else "wrong")


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
