"""Find the latent sites that a model contracts with an input, and the contracted axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from pyro import poutine
from torch.overrides import TorchFunctionMode

from guides.families.mc_dropout import WeightSites, prior_scale


def _functions(*names: str) -> set[Callable]:
    owners = (torch, torch.Tensor, torch.nn.functional)
    return {getattr(o, name) for o in owners for name in names if hasattr(o, name)}


_MOVES = _functions(*"t transpose swapaxes swapdims permute movedim moveaxis adjoint".split())
_MOVES |= {getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH")}
_SAME = _functions(*"clone contiguous to type_as float double half bfloat16 cpu".split())
_PRODUCTS = _functions(*"matmul __matmul__ mm mv dot".split())
_REVERSED = _functions("__rmatmul__")
_ADDED = _functions("addmm", "addmv")


def weights_of(
    model: Callable, sites: Mapping[str, dict], args: tuple, kwargs: dict
) -> WeightSites:
    """Run a model to find which of its latent ``sites`` linear maps contract."""
    values = {name: site["value"].detach().clone() for name, site in sites.items()}
    for value in values.values():
        value.requires_grad_(value.is_floating_point())
    spy = _Contractions(values)
    with torch.enable_grad(), poutine.block(), spy:
        trace = poutine.trace(poutine.condition(model, data=values)).get_trace(*args, **kwargs)
    nodes: Any = trace.nodes
    scales = {name: prior_scale(nodes[name]["fn"]) for name in sites}
    learnt = (name for name, scale in scales.items() if getattr(scale, "requires_grad", False))
    return WeightSites(spy.contracted_axes, frozenset(learnt))


class _Contractions(TorchFunctionMode):
    """Mode of torch that follows the values of sites through transposes to contractions."""

    def __init__(self, sites: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.contracted_axes: dict[str, int] = {}
        # By id: the tensor, kept so that its id is not reused, the site, and which of the
        # site's own axes is at each place.
        self.known = {
            id(value): (value, name, tuple(range(-value.dim(), 0))) for name, value in sites.items()
        }

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for operand, axis in _contracted(func, args, kwargs):
            if (known := self.known.get(id(operand))) is not None:
                self.contracted_axes.setdefault(known[1], known[2][axis])
        source = self.known.get(id(args[0])) if args else None
        if source is not None and (func in _SAME or func in _MOVES):
            _, name, order = source
            if func in _MOVES:
                order = tuple(order[place] for place in _order(func, len(order), args[1:], kwargs))
            self.known[id(result)] = result, name, order
        return result


def _order(func: Callable, rank: int, rest: tuple, kwargs: dict) -> list[int]:
    """Return the old axis at each new place, found by moving an array of distinct sizes."""
    moved = func(torch.empty(tuple(range(1, rank + 1)), device="meta"), *rest, **kwargs)
    return [size - 1 for size in moved.shape]


def _contracted(func: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[Any, int]]:
    """Yield the operands of a contraction of one axis, each with that axis (negative)."""
    if func is torch.nn.functional.linear:
        yield (args[1] if len(args) > 1 else kwargs["weight"]), -1
    elif func in _PRODUCTS or func in _REVERSED or func in _ADDED:
        operands = [*args, *kwargs.values()][func in _ADDED :][:2]
        left, right = operands[::-1] if func in _REVERSED else operands
        yield left, -1
        yield right, -min(torch.as_tensor(right).dim(), 2)
    elif func is torch.einsum and args and isinstance(args[0], str):
        yield from _einsum_operands(args)
    elif func is torch.tensordot:
        yield from _tensordot(*args, **kwargs)


def _einsum_operands(args: tuple) -> Iterator[tuple[Any, int]]:
    operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
    inputs, _, result = args[0].replace(" ", "").partition("->")
    letters = inputs.split(",")
    if len(operands) != 2 or "." in inputs:
        return
    shared = [name for name in letters[0] if name in letters[1] and name not in result]
    if len(shared) == 1:
        for operand, names in zip(operands, letters, strict=True):
            yield operand, names.index(shared[0]) - len(names)


def _tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Iterator[tuple[Any, int]]:
    if dims == 1:
        dims = [[a.dim() - 1], [0]]
    if not isinstance(dims, int) and len(dims[0]) == 1:
        for operand, (axis,) in ((a, dims[0]), (b, dims[1])):
            yield operand, axis if axis < 0 else axis - operand.dim()
