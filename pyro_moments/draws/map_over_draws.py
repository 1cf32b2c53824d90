"""Run a program with each of many draws, by vmap where torch can."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyro
import torch

from pyro_moments._host import tree_flatten, tree_leaves, tree_map, tree_unflatten
from pyro_moments.particles.noise import OutOfPlace, OwnArrays

NUMBERS_PER_BATCH = 2**24  # numbers that a batch of draws may hold
Values = Mapping[str, torch.Tensor]
Program = Callable[[Values], Any]


def map_over_draws(
    program: Program, values: Values, count: int, size: int | None = None, inputs: int = 1
) -> Any:
    """Return what a program returns for each of ``count`` draws, a pytree of arrays [draws, ...].

    The first draw runs alone, with Pyro's validation. The others run by vmap, or one
    after the other if vmap fails, as it does if values decide what runs.
    """
    first = program({name: value[0] for name, value in values.items()})
    result, tree = tree_flatten(first)
    arrays = [np.empty((count, *part.shape), _as_array(part).dtype) for part in result]
    # Without a size: as many draws as fit into memory, beside the inputs that the program
    # reads.
    size = size or _batch_size(
        result, max([inputs, *(part[0].numel() for part in values.values())])
    )
    run = _runner(program, values, min(size, count))
    for start in range(0, count, size):
        part = {name: value[start : start + size] for name, value in values.items()}
        results = tree_leaves(run(part, min(size, count - start)))
        for leaf, block in zip(arrays, results, strict=True):
            leaf[start : start + size] = _as_array(block)
    return tree_unflatten(arrays, tree)


def _batch_size(result: list[torch.Tensor], inputs: int) -> int:
    return max(1, NUMBERS_PER_BATCH // (sum(part.numel() for part in result) + 10 * inputs))


def _as_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _runner(program: Program, values: Values, size: int) -> Callable[[Values, int], Any]:
    """Return the first way to run the program that works for two draws; one by one always does."""
    count = min(size, 2)
    part = {name: value[:count] for name, value in values.items()}
    ways = [partial(_at_once, program, mode) for mode in (_shared_mode, OwnArrays)]
    for way in ways if size > 1 else ():
        try:
            way(part, count)
        except Exception:  # vmap fails; an error of the model also occurs without vmap
            continue
        return way
    return partial(_one_by_one, program)


def _shared_mode(_: torch.Tensor) -> OutOfPlace:
    return OutOfPlace()


def _at_once(
    program: Program, mode: Callable[[torch.Tensor], OutOfPlace], values: Values, count: int
) -> Any:
    def once(values: Values, zero: torch.Tensor) -> Any:
        with mode(zero):
            return program(values)

    with pyro.validation_enabled(False), warnings.catch_warnings():  # validation looks at values
        # Such operations are still faster than draws one by one.
        warnings.filterwarnings("ignore", "There is a performance drop")
        mapped = torch.vmap(once, randomness="different")
        return mapped(dict(values), torch.zeros(count))


def _one_by_one(program: Program, values: Values, count: int) -> Any:
    result = [program({name: value[at] for name, value in values.items()}) for at in range(count)]
    return tree_map(lambda *parts: torch.stack(parts), *result)
