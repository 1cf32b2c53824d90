"""Normal values that are not drawn yet, and what is drawn with noise of its own for each row.

A few functions leave values undrawn, see :mod:`.later`; all others draw. What becomes of rows is
followed, see :mod:`.rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from guides.families import mean_field
from moment_calculus.numerics.arrays import standard_deviation
from pyro_moments.evaluation import vmap
from pyro_moments.evaluation.metadata import METADATA
from pyro_moments.evaluation.tensor import define_operators
from pyro_moments.particles.rows import RULES, Placed
from pyro_moments.particles.site import Site, Together

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


define_operators(_Shell)


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
        return self.moved(self.site.scale)

    def draw(self) -> torch.Tensor:
        """The draw of the site, where its elements are now."""
        return self.moved(self.site.draw())

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """What has the shape of the site, with its elements where they are now.

        Args:
            tensor: of that shape.
        """
        return _moved(tensor, self.moves)


def _moved(tensor: torch.Tensor, moves: tuple[Callable, ...]) -> torch.Tensor:
    for move in moves:
        tensor = move(tensor)
    return tensor


class Rows(_Shell):
    """Tensor-like shell of drawn values of which each row has noise of its own.

    Args:
        tensor: the values.
        axis: of the rows, negative.
        sites: names of the weights whose noise is in them.
    """

    tensor: torch.Tensor
    axis: int
    sites: frozenset[str]

    @staticmethod
    def __new__(cls, tensor: torch.Tensor, axis: int, sites: frozenset[str]) -> Rows:
        """Make the shell."""
        shell = torch.Tensor._make_wrapper_subclass(
            cls, tensor.shape, dtype=tensor.dtype, device=tensor.device
        )
        shell.tensor, shell.axis, shell.sites = tensor, axis, sites
        return shell

    def __init__(self, *_: Any) -> None:
        """Nothing is left to do: ``__new__`` made the shell."""


class UndrawnRows(_Shell):
    """Tensor-like shell of rows of a map by a random weight, with noise of their own.

    Args:
        mean: of the outputs.
        variance: of the outputs.
        sites: whose noise it is.
        many: whether there are several rows, along the leading axis, or is one.
        before: names of the weights whose noise is in the inputs.
    """

    mean_: torch.Tensor
    variance_: torch.Tensor
    sites: tuple[Site, ...]
    many: bool
    before: frozenset[str]
    drawn_: Any

    @staticmethod
    def __new__(
        cls,
        mean: torch.Tensor,
        variance: torch.Tensor,
        sites: tuple[Site, ...],
        many: bool,
        before: frozenset[str] = frozenset(),
    ) -> UndrawnRows:
        """Make the shell."""
        shell = torch.Tensor._make_wrapper_subclass(
            cls, mean.shape, dtype=mean.dtype, device=mean.device
        )
        shell.mean_, shell.variance_, shell.drawn_ = mean, variance, None
        shell.sites, shell.many, shell.before = sites, many, before
        return shell

    def __init__(self, *_: Any) -> None:
        """Nothing is left to do: ``__new__`` made the shell."""

    def draw(self) -> Any:
        """The draw, the same for all who ask."""
        if self.drawn_ is None:
            if vmap.refuses_draws():
                raise vmap.refusal(site.name for site in self.sites)
            noise = torch.randn_like(self.mean_)
            found = mean_field.sample(self.mean_, standard_deviation(self.variance_), noise)
            self.drawn_ = in_rows(found, self.many, self.before, self.sites)
        return self.drawn_


def in_rows(found: torch.Tensor, many: bool, before: frozenset[str], sites: Any) -> Any:
    """Outputs of a map, in rows where there are several.

    Args:
        found: the outputs.
        many: whether the leading axis is of rows.
        before: names of the weights whose noise is in the inputs.
        sites: the weights of the map.
    """
    if not many or len(found) == 1:
        return found
    return Rows(found, -found.dim(), before.union(site.name for site in sites))


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
    return _by_rows(func, drawn(args), drawn(kwargs)) if result is None else result


def _by_rows(func: Callable, args: tuple, kwargs: dict) -> Any:
    """The result of a function on draws, of which the rows are followed."""
    sites = rows_in((args, kwargs))
    if not sites:
        return func(*args, **kwargs)
    axis = _axis(func, _placed(args), _placed(kwargs))
    if axis is None:
        raise Together(sites)
    result = func(*plain(args), **plain(kwargs))
    if isinstance(result, tuple | list):
        pairs = zip(args, result, strict=True)  # each is one of the operands, made wider
        return type(result)(
            Rows(part, axis, sites) if isinstance(operand, Rows) else part
            for operand, part in pairs
        )
    return Rows(result, axis, sites)


def _axis(func: Callable, args: tuple, kwargs: dict) -> int | None:
    """Where the rows of a result are; None if they may be mixed."""
    rule = RULES.get(func)
    if rule is None:
        return None
    try:
        return rule(*args, **kwargs)
    except TypeError:  # a signature that the rule does not know
        return None


def rows_in(argument: Any) -> frozenset[str]:
    """Names of the weights whose noise is in the rows of an argument.

    Args:
        argument: tensor, container, or anything else.
    """
    if isinstance(argument, Rows):
        return argument.sites
    if type(argument) is dict:
        argument = list(argument.values())
    if type(argument) in (tuple, list):
        return frozenset().union(*map(rows_in, argument))
    return frozenset()


def _mapped(argument: Any, change: Callable[[Rows], Any]) -> Any:
    if isinstance(argument, Rows):
        return change(argument)
    if type(argument) in (tuple, list):
        return type(argument)(_mapped(part, change) for part in argument)
    if type(argument) is dict:
        return {name: _mapped(part, change) for name, part in argument.items()}
    return argument


def _placed(argument: Any) -> Any:
    return _mapped(argument, lambda rows: Placed(rows.tensor, rows.axis))


def plain(argument: Any) -> Any:
    """An argument with tensors for rows.

    Args:
        argument: tensor, container, or anything else.
    """
    return _mapped(argument, lambda rows: rows.tensor)


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
