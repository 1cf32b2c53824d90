"""Random programs: generated from a seed, run in either host, printed as source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.fuzzer import drawing
from tests.fuzzer.gates import GATES
from tests.fuzzer.layers import MOST as MOST_BITS
from tests.fuzzer.layers import size_of_masks
from tests.fuzzer.operations import (
    ARITHMETIC,
    DROPOUT,
    FUNCTIONS,
    MAPS,
    OPERATIONS,
    SHAPES,
    Operation,
)

SCALE = 1e-4  # of the standard deviations: what is of second order is 1e-8 of what is of first
LARGEST, MOST = 8.0, 48  # value and number of elements that a program may have
ALL = tuple(OPERATIONS.values())


@dataclass(frozen=True)
class Input:
    """A Gaussian input; the covariance is over the trailing axis."""

    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray | None = None


@dataclass(frozen=True)
class Line:
    """``result = operation(*operands)``, with what the operation drew."""

    result: str
    operation: Operation
    operands: tuple[str, ...]
    drawn: dict[str, Any]
    spelling: int = 0

    def constants(self) -> dict[str, np.ndarray]:
        """The arrays among the arguments, by the names that they have in the program."""
        arrays = {key: drawn for key, drawn in self.drawn.items() if isinstance(drawn, np.ndarray)}
        return {f"{key}_{self.result}": drawn for key, drawn in arrays.items()}

    def source(self, host: str) -> str:
        """The right-hand side."""
        names = {name.split("_")[0]: name for name in self.constants()}
        spelling = self.operation.spelled(host, self.spelling)
        return spelling.format(*self.operands, **{**self.drawn, **names})


@dataclass(frozen=True)
class Program:
    """Lines of operations on named inputs."""

    inputs: dict[str, Input]
    lines: tuple[Line, ...]
    output: str
    seed: int | None = None

    def function(self, host: str) -> Callable:
        """The program as a function of its inputs in a host."""
        return compiled(self.source(host), host, self.constants())

    def values(self, host: str, names: list[str], layer: Callable | None = None) -> Callable:
        """The function that returns these values of the program, with other layers of dropout."""
        source = self._source(host, f"({', '.join(names)},)")
        return compiled(source, host, self.constants(), layer)

    def constants(self) -> dict[str, np.ndarray]:
        return {name: value for line in self.lines for name, value in line.constants().items()}

    def source(self, host: str) -> str:
        """The program as a function definition."""
        return self._source(host, self.output)

    def _source(self, host: str, output: str) -> str:
        lines = [f"{line.result} = {line.source(host)}" for line in self.lines]
        body = "\n    ".join([*lines, f"return {output}"])
        return f"def program({', '.join(self.inputs)}):\n    {body}\n"

    def described(self, host: str) -> str:
        """What a reader needs to run it: inputs, constants and source."""
        parts = [] if self.seed is None else [f"# seed {self.seed}"]
        for name, one in self.inputs.items():
            spread = "variance" if one.covariance is None else "covariance"
            value = one.variance if one.covariance is None else one.covariance
            parts.append(f"{name} = Moments({_shown(one.mean)}, {spread}={_shown(value)})")
        parts += [f"{name} = {_shown(value)}" for name, value in self.constants().items()]
        return "\n".join([*parts, self.source(host)])

    @property
    def has_dropout(self) -> bool:
        """Whether there are layers of dropout."""
        return "dropped(" in self.source("torch")

    def operations(self) -> set[str]:
        return {line.operation.name for line in self.lines}


def _shown(value: np.ndarray) -> str:
    return f"array({np.array2string(value, separator=', ', max_line_width=10**6)})".replace(
        "\n", ""
    )


def compiled(
    source: str, host: str, constants: dict[str, np.ndarray], layer: Callable | None = None
) -> Callable:
    """The function of a source text; a layer of dropout is the host's unless there is another."""
    names = dict(namespace(host))
    names["dropped"] = layer or names["dropped"]
    for name, value in constants.items():
        names[name] = torch.as_tensor(value) if host == "torch" else names["jnp"].asarray(value)
    exec(compile(source, "<program>", "exec"), names)
    return names["program"]


def namespace(host: str) -> dict[str, Any]:
    """The modules and functions that the spellings name."""
    if host == "torch":
        return {"torch": torch, "F": F, "dropped": F.dropout}
    import jax
    import jax.numpy as jnp

    from tests.fuzzer.layers import dropped_in_jax

    return {"jax": jax, "jnp": jnp, "dropped": dropped_in_jax}


def pruned(program: Program) -> Program:
    """Without the lines and the inputs that the output does not need."""
    needed, lines = {program.output}, []
    for line in reversed(program.lines):
        if line.result in needed:
            needed.update(line.operands)
            lines.append(line)
    inputs = {name: one for name, one in program.inputs.items() if name in needed}
    return replace(program, inputs=inputs, lines=tuple(reversed(lines)))


def generate(
    seed: int,
    sizes: tuple[int, ...] = (1, 2, 2, 3, 3, 4),
    operations: Sequence[Operation] = ALL,
    linear: Sequence[Operation] = (),
    first: Sequence[Operation] = (),
) -> Program:
    """The program of a seed.

    Args:
        seed: any number.
        sizes: of the axes of the inputs, as often as they are to appear.
        operations: of which it is made.
        linear: of which its last lines are made, if there are any; they meet no other value of
            the program.
        first: of which its first lines are made, if there are any.
    """
    rng = np.random.default_rng(seed)
    inputs = {f"x{i}": _input(rng, sizes) for i in range(int(rng.integers(1, 4)))}
    values = {name: torch.as_tensor(one.mean) for name, one in inputs.items()}
    lines: list[Line] = []
    wanted, last = int(rng.integers(2, 7)), int(rng.integers(3)) if linear else 0
    begun = int(rng.integers(3)) if first and any(one.mean.ndim for one in inputs.values()) else 0
    while len(lines) < wanted + last:
        shapes = {name: tuple(value.shape) for name, value in values.items()}
        chosen, partnered = (first if len(lines) < begun else operations), 0.8
        if len(lines) >= wanted:  # of the newest alone
            shapes, chosen, partnered = dict([shapes.popitem()]), linear, 1.0
        line, new = _line(rng, f"v{len(lines)}", shapes, chosen, partnered)
        means = {name: torch.as_tensor(one.mean) for name, one in new.items()}
        value = None if line is None else _evaluated(line, values | means)
        if value is not None:
            lines.append(line)
            inputs |= new
            values |= {**means, line.result: value}
    return pruned(Program(inputs, tuple(lines), lines[-1].result, seed))


def generate_without_gates(seed: int) -> Program:
    """The program of a seed without cells and attention, which the hosts compute differently."""
    return generate(seed, operations=[one for one in ALL if one not in GATES])


def generate_with_dropout(seed: int) -> Program:
    """The program of a seed with layers of dropout, each before any function."""
    others = [*FUNCTIONS, *ARITHMETIC, *SHAPES]
    choices = [DROPOUT] * (len(others) // 4) + others
    names = ("linear", "matrix_before", "einsum_constant", "sum_of_all", "negate")
    linear = [OPERATIONS[name] for name in (*names, "random_linear", "matmul", "random_einsum")]
    while True:
        program = generate(seed, (1, 1, 2, 3), choices, linear, MAPS)
        means = [torch.as_tensor(one.mean) for one in program.inputs.values()]
        if program.has_dropout and size_of_masks(program, means) <= MOST_BITS:
            return program
        seed += 1_000_003


def _input(rng: np.random.Generator, sizes: tuple[int, ...]) -> Input:
    rank = int(rng.choice(4, p=[0.1, 0.25, 0.45, 0.2]))
    shape = tuple(int(drawing.pick(rng, sizes)) for _ in range(rank))
    if rank and rng.random() < 0.2:
        factor = drawing.array(rng, (*shape, shape[-1]))
        covariance = SCALE**2 * np.round(factor @ np.swapaxes(factor, -1, -2), 4)
        variance = np.diagonal(covariance, axis1=-2, axis2=-1)
        return Input(drawing.array(rng, shape), variance, covariance)
    return _independent(rng, drawing.array(rng, shape))


def _independent(rng: np.random.Generator, mean: np.ndarray) -> Input:
    spread = np.round(rng.uniform(0.5, 1.5, size=mean.shape) ** 2, 4)
    return Input(mean, np.asarray(SCALE**2 * spread))


def _line(
    rng: np.random.Generator,
    result: str,
    shapes: dict[str, tuple],
    operations: Sequence[Operation],
    partnered: float,
) -> tuple[Line | None, dict[str, Input]]:
    """A random operation, most often on the newest value, and its input."""
    operation = drawing.pick(rng, operations)
    names, new = list(shapes), {}
    newest = names[-1] if rng.random() < 0.75 else drawing.pick(rng, names)
    operands = [newest] + [drawing.pick(rng, names) for _ in range(operation.arity - 1)]
    if operation.partner is not None and rng.random() < partnered:
        operands[1] = f"w{result}"
        drawn = operation.partner(rng, shapes[newest])
        if drawn is not None:
            new[operands[1]] = _independent(rng, drawn.pop("c"))
    else:
        rng.shuffle(operands)
        drawn = operation.draw(rng, *(shapes[name] for name in operands))
    if drawn is None:
        return None, {}
    return Line(result, operation, tuple(operands), drawn, int(rng.integers(6))), new


def _kept(value: torch.Tensor, rate: float) -> torch.Tensor:
    """A layer of dropout that keeps everything."""
    return value / (1 - rate)


def _evaluated(line: Line, values: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """Its value at the means; None where it is out of range or near a kink."""
    operands = [values[name] for name in line.operands]
    if any(line.operation.unfit(line.drawn, value.numpy()) for value in operands):
        return None
    source = f"def program({', '.join(dict.fromkeys(line.operands))}):\n    return "
    function = compiled(source + line.source("torch"), "torch", line.constants(), _kept)
    value = function(*{name: values[name] for name in line.operands}.values())
    if value.numel() > MOST or value.ndim > 3 or value.numel() == 0:
        return None
    return value if bool((value.abs() < LARGEST).all()) else None
