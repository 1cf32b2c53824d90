"""Tensor-like objects for latent sites that are not drawn yet and for draws that differ by row.

The functions of :mod:`.later` keep values undrawn; every other function draws. The axis of rows is
tracked by the rules of :mod:`.rows`.
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
LATER: dict[Callable, Callable] = {}  # rules that keep values undrawn, from .later
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
    """A tensor-like object without storage, which is drawn when a function needs its values."""

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Return the result of a rule that needs no draw; draw for any other function."""
        return called(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Draw for calls that bypassed ``__torch_function__``."""
        return called(func, args, kwargs or {})

    __hash__ = object.__hash__


define_operators(_Shell)


class Undrawn(_Shell):
    """Tensor-like shell of a site that is not drawn yet; its elements may have been moved."""

    site: Site
    # Functions that move elements, in the order of application.
    moves: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    loc: torch.Tensor

    @staticmethod
    def __new__(cls, site: Site, moves: tuple[Callable, ...] = ()) -> Undrawn:
        """Make the shell, which has the site's dtype and device and no storage."""
        loc = _moved(site.loc, moves)
        shell = torch.Tensor._make_wrapper_subclass(
            cls, loc.shape, dtype=loc.dtype, device=loc.device
        )
        shell.site, shell.moves, shell.loc = site, moves, loc
        return shell

    def __init__(self, site: Site, moves: tuple[Callable, ...] = ()) -> None:
        """Do nothing: ``__new__`` has made the shell."""

    @property
    def scale(self) -> torch.Tensor:
        """Return the standard deviations, with their elements moved."""
        return self.moved(self.site.scale)

    def draw(self) -> torch.Tensor:
        """Return the draw of the site, with its elements moved."""
        return self.moved(self.site.draw())

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Apply the moves to a tensor that has the shape of the site."""
        return _moved(tensor, self.moves)


def _moved(tensor: torch.Tensor, moves: tuple[Callable, ...]) -> torch.Tensor:
    for move in moves:
        tensor = move(tensor)
    return tensor


class Rows(_Shell):
    """Tensor-like shell of draws in which each row has noise of its own."""

    tensor: torch.Tensor
    axis: int  # of the rows, negative
    sites: frozenset[str]  # names of the weights whose noise is in the draws

    @staticmethod
    def __new__(cls, tensor: torch.Tensor, axis: int, sites: frozenset[str]) -> Rows:
        """Make the shell."""
        shell = torch.Tensor._make_wrapper_subclass(
            cls, tensor.shape, dtype=tensor.dtype, device=tensor.device
        )
        shell.tensor, shell.axis, shell.sites = tensor, axis, sites
        return shell

    def __init__(self, *_: Any) -> None:
        """Do nothing: ``__new__`` has made the shell."""


class UndrawnRows(_Shell):
    """Tensor-like shell of the outputs of a random weight, with noise of their own for each row."""

    mean_: torch.Tensor
    variance_: torch.Tensor
    sites: tuple[Site, ...]  # whose noise it is
    many: bool  # whether the leading axis is of rows; if not, there is one row
    before: frozenset[str]  # names of the weights whose noise is in the inputs
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
        """Do nothing: ``__new__`` has made the shell."""

    def draw(self) -> Any:
        """Return the one draw of the outputs."""
        if self.drawn_ is None:
            if vmap.refuses_draws():
                raise vmap.refusal(site.name for site in self.sites)
            noise = torch.randn_like(self.mean_)
            found = mean_field.sample(self.mean_, standard_deviation(self.variance_), noise)
            self.drawn_ = in_rows(found, self.many, self.before, self.sites)
        return self.drawn_


def in_rows(found: torch.Tensor, many: bool, before: frozenset[str], sites: Any) -> Any:
    """Return the outputs of a map by random weights, as Rows if there are several rows."""
    if not many or len(found) == 1:
        return found
    return Rows(found, -found.dim(), before.union(site.name for site in sites))


def called(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Return the result of a torch function of which some arguments are not drawn yet."""
    if func in METADATA:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if func in _LIKE and isinstance(args[0], Undrawn):
        return func(args[0].loc, *args[1:], **kwargs)
    later = LATER.get(func)
    result = None if later is None else later(*args, **kwargs)
    return _by_rows(func, drawn(args), drawn(kwargs)) if result is None else result


def _by_rows(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Call a function of draws, and return Rows if it gets Rows; raise Together if rows may mix."""
    sites = rows_in((args, kwargs))
    if not sites:
        return func(*args, **kwargs)
    axis = _axis(func, _placed(args), _placed(kwargs))
    if axis is None:
        raise Together(sites)
    result = func(*plain(args), **plain(kwargs))
    if isinstance(result, tuple | list):
        pairs = zip(args, result, strict=True)  # each result is an operand, broadcast
        return type(result)(
            Rows(part, axis, sites) if isinstance(operand, Rows) else part
            for operand, part in pairs
        )
    return Rows(result, axis, sites)


def _axis(func: Callable, args: tuple, kwargs: dict) -> int | None:
    """Return the axis of the rows in a result; None if rows may be mixed."""
    rule = RULES.get(func)
    if rule is None:
        return None
    try:
        return rule(*args, **kwargs)
    except TypeError:  # the rule does not know this signature
        return None


def rows_in(argument: Any) -> frozenset[str]:
    """Return the names of the weights whose noise is in the rows of an argument."""
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
    """Replace Rows in an argument by their tensors."""
    return _mapped(argument, lambda rows: rows.tensor)


def drawn(argument: Any) -> Any:
    """Replace undrawn values in an argument by their draws."""
    if isinstance(argument, Undrawn | UndrawnRows):
        return argument.draw()
    if type(argument) in (tuple, list):
        return type(argument)(map(drawn, argument))
    if type(argument) is dict:
        return {name: drawn(part) for name, part in argument.items()}
    return argument
