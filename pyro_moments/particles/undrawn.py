"""Normal values that are not drawn yet: sites, and the rows of a map by a random weight.

A few functions leave them so, others draw.

Local reparameterisation: a map x W + b of rows of data by weights that nothing else uses is Normal
in every row, and what is summed over rows has the same expectation when each row has noise of its
own, with less variance. :mod:`.proof` makes sure that rows are not mixed afterwards.

Source: Kingma, Salimans and Welling 2015; Li and Gal 2017, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus.numerics.matrices import squared
from pyro_moments.evaluation.tensor import METADATA
from pyro_moments.particles.site import MaskedSite, Site
from pyro_moments.rules.table import named

Tensor = torch.Tensor
LATER: dict[Callable, Callable] = {}
_LIKE = frozenset(
    {
        torch.zeros_like,
        torch.ones_like,
        torch.empty_like,
        torch.full_like,
        Tensor.new_zeros,
        Tensor.new_ones,
        Tensor.new_empty,
        Tensor.new_full,
        Tensor.new_tensor,
    }
)


class _Shell(torch.Tensor):
    """What looks like a tensor, and has no storage."""

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Do what is possible without a draw; draw for anything else."""
        return called(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Draw for what bypassed ``__torch_function__``."""
        return called(func, args, kwargs or {})

    __hash__ = object.__hash__


class Undrawn(_Shell):
    """Tensor-like shell of a site that is not drawn yet, its elements possibly moved.

    Args:
        site: the site.
        moves: what moves its elements, the first to apply first.
    """

    site: Site
    moves: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    loc: torch.Tensor

    @staticmethod
    def __new__(cls, site: Site, moves: tuple[Callable, ...] = ()) -> Undrawn:
        """Make the shell: it has the site's dtype and device, and no storage."""
        loc = _moved(site.loc, moves)
        shell = torch.Tensor._make_wrapper_subclass(
            cls, loc.shape, dtype=loc.dtype, device=loc.device
        )
        shell.site, shell.moves, shell.loc = site, moves, loc
        return shell

    def __init__(self, site: Site, moves: tuple[Callable, ...] = ()) -> None:
        """Nothing is left to do: ``__new__`` made the shell."""

    @property
    def scale(self) -> torch.Tensor:
        """Standard deviations where they are now."""
        return _moved(self.site.scale, self.moves)

    def draw(self) -> torch.Tensor:
        """The draw of the site, where its elements are now."""
        return _moved(self.site.draw(), self.moves)


def _moved(tensor: torch.Tensor, moves: tuple[Callable, ...]) -> torch.Tensor:
    for move in moves:
        tensor = move(tensor)
    return tensor


class UndrawnRows(_Shell):
    """Tensor-like shell of rows of a map by a random weight, with noise of their own.

    Args:
        mean: of the outputs.
        variance: of the outputs.
        sites: whose noise it is.
        many: whether there are several rows, along the leading axis, or is one.
    """

    mean_: torch.Tensor
    variance_: torch.Tensor
    sites: tuple[Site, ...]
    many: bool
    drawn_: torch.Tensor | None

    @staticmethod
    def __new__(
        cls, mean: torch.Tensor, variance: torch.Tensor, sites: tuple[Site, ...], many: bool
    ) -> UndrawnRows:
        """Make the shell."""
        shell = torch.Tensor._make_wrapper_subclass(
            cls, mean.shape, dtype=mean.dtype, device=mean.device
        )
        shell.mean_, shell.variance_, shell.drawn_ = mean, variance, None
        shell.sites, shell.many = sites, many
        return shell

    def __init__(self, *_: Any) -> None:
        """Nothing is left to do: ``__new__`` made the shell."""

    def draw(self) -> torch.Tensor:
        """The draw, the same for all who ask."""
        if self.drawn_ is None:
            self.drawn_ = self.sites[0].particle.rows(self)
        return self.drawn_


def called(func: Callable, args: tuple, kwargs: dict) -> Any:
    """The result of a function of torch on arguments of which some are not drawn.

    Args:
        func: the function.
        args: its arguments.
        kwargs: likewise, by name.
    """
    if func in METADATA:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if func in _LIKE and isinstance(args[0], Undrawn):
        return func(args[0].loc, *args[1:], **kwargs)
    later = LATER.get(func)
    result = None if later is None else later(*args, **kwargs)
    return func(*drawn(args), **drawn(kwargs)) if result is None else result


def drawn(argument: Any) -> Any:
    """An argument with draws for what is not drawn.

    Args:
        argument: of a function.
    """
    if isinstance(argument, Undrawn | UndrawnRows):
        return argument.draw()
    if type(argument) in (tuple, list):
        return type(argument)(map(drawn, argument))
    if type(argument) is dict:
        return {name: drawn(part) for name, part in argument.items()}
    return argument


def _later(*functions: Callable) -> Callable[[Callable], Callable]:
    def register(rule: Callable) -> Callable:
        LATER.update(dict.fromkeys(functions, rule))
        return rule

    return register


def _move(function: Callable) -> Callable[..., Undrawn | None]:
    """What a function does that moves elements, and repeats none."""

    def rule(input: Any, *args: Any, **kwargs: Any) -> Undrawn | None:
        if not isinstance(input, Undrawn):
            return None
        return Undrawn(input.site, (*input.moves, lambda part: function(part, *args, **kwargs)))

    return rule


for _function in {
    *named("t", "adjoint", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis"),
    *named("reshape", "view", "flatten", "squeeze", "unsqueeze", "contiguous", "clone"),
    *(Tensor.T.__get__, Tensor.mT.__get__),  # type: ignore[attr-defined]
}:
    _later(_function)(_move(_function))


@_later(*named("expand", "broadcast_to"))
def _as_it_is(input: Any, *sizes: Any) -> Any:
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return input if shape == tuple(input.shape) else None


@_later(F.linear)
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    input, apart = drawn(input), isinstance(weight, Undrawn) and weight.site.can_be_apart
    if not apart or not _is_matrix(input) or len(weight.shape) != 2:
        return None
    own = isinstance(bias, Undrawn) and bias.site.can_be_apart
    certain = None if own else drawn(bias)
    weight.site.take_apart()
    if isinstance(weight.site, MaskedSite):
        return F.linear(weight.site.particle.masked(input, weight.site), weight.loc, drawn(bias))
    if own:
        bias.site.take_apart()
        mean = F.linear(input, weight.loc, bias.loc)
        variance = F.linear(squared(input), squared(weight.scale), squared(bias.scale))
        return UndrawnRows(mean, variance, (weight.site, bias.site), input.dim() > 1)
    mean = F.linear(input, weight.loc, certain)
    variance = F.linear(squared(input), squared(weight.scale))
    return UndrawnRows(mean, variance, (weight.site,), input.dim() > 1)


def _is_matrix(input: Any) -> bool:
    return isinstance(input, Tensor) and input.dim() in (1, 2)


@_later(*named("matmul", "__matmul__", "mm", "mv"))
def _product(input: Any, other: Any) -> Any:
    if not isinstance(other, Undrawn) or other.dim() > 2:
        return None
    return _linear(input, other.mT) if other.dim() == 2 else _scalars(input, other)


def _scalars(input: Any, weight: Undrawn) -> Any:
    """The products of the rows of a matrix and a vector."""
    input = drawn(input)
    if not weight.site.can_be_apart or not _is_matrix(input):
        return None
    weight.site.take_apart()
    if isinstance(weight.site, MaskedSite):
        return weight.site.particle.masked(input, weight.site) @ weight.loc
    variance = squared(input) @ squared(weight.scale)
    return UndrawnRows(input @ weight.loc, variance, (weight.site,), input.dim() > 1)


@_later(*named("addmm"))
def _with_addend(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    plain = beta == 1 and alpha == 1 and isinstance(mat2, Undrawn)
    fits = plain and tuple(input.shape) == tuple(mat2.shape[1:])
    return _linear(mat1, mat2.mT, input) if fits else None


@_later(*named("add", "__add__", "__radd__"))
def _sum(input: Any, other: Any, *, alpha: float = 1) -> UndrawnRows | None:
    rows, bias = (other, input) if isinstance(input, Undrawn) else (input, other)
    if not (isinstance(rows, UndrawnRows) and isinstance(bias, Undrawn) and alpha == 1):
        return None
    if rows.drawn_ is not None or not bias.site.can_be_apart:
        return None
    if tuple(bias.shape) != tuple(rows.shape[rows.many :]):
        return None
    bias.site.take_apart()
    sites = (*rows.sites, bias.site)
    variance = rows.variance_ + squared(bias.scale)
    return UndrawnRows(rows.mean_ + bias.loc, variance, sites, rows.many)
