"""A shorter program with the same verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from tests.fuzzer.programs import SCALE, Input, Program, pruned


def minimised(program: Program, still_fails: Callable[[Program], bool]) -> Program:
    """Shorten while the program fails.

    Args:
        program: one that fails.
        still_fails: whether a shorter one does.
    """
    for shorter in _shorter(program):
        if still_fails(shorter):
            return minimised(shorter, still_fails)
    return program


def _shorter(program: Program) -> Iterator[Program]:
    """Programs with an earlier output, or with an input in the place of a line."""
    for line in program.lines[:-1]:
        yield pruned(replace(program, output=line.result))
    for place, line in enumerate(program.lines[:-1]):
        lines = program.lines[:place] + program.lines[place + 1 :]
        inputs = {**program.inputs, line.result: _as_input(program, line.result)}
        yield pruned(replace(program, lines=lines, inputs=inputs))
    for name, one in program.inputs.items():
        if one.covariance is not None:
            plain = replace(one, covariance=None)
            yield replace(program, inputs={**program.inputs, name: plain})


def _as_input(program: Program, name: str) -> Input:
    """An independent input with the mean of a value."""
    means = [torch.as_tensor(one.mean) for one in program.inputs.values()]
    mean = program.values("torch", [name])(*means)[0].numpy().copy()
    return Input(mean, np.full(mean.shape, SCALE**2))
