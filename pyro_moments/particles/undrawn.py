"""Latent sites that are not drawn yet, and draws that differ by row, as tensor-like objects.

A site is drawn at most once and as late as possible. The functions of :mod:`.lazy_rules`
keep values undrawn; every other function draws. The axis of rows is tracked by the rules
of :mod:`.rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

from moment_calculus.numerics import standard_deviation
from moment_calculus.values import FunctionRegistry
from moment_guides.families import mean_field
from moment_inference import MaskedSite, SharedDrawNeeded, Site
from pyro_moments._host import call_plainly, vmap_forbids_randomness
from pyro_moments.evaluation.tensor import (
    METADATA,
    Shell,
    vmap_error,
)
from pyro_moments.particles.rows import RULES, WithRowAxis


class Particle:
    """Settings of one run of the program, which vmap repeats for several particles."""

    def __init__(
        self, shared_draws: Collection[str] = (), is_mean: bool = False, *, by_rows: bool = True
    ) -> None:
        # Names of sites drawn once for all rows; whether means replace draws; whether
        # rows may have noise of their own at all.
        self.shared_draws, self.is_mean, self.by_rows = frozenset(shared_draws), is_mean, by_rows

    def site(self, name: str, loc: torch.Tensor, scale: torch.Tensor) -> Site:
        """Return a latent site with a Normal posterior."""

        def normal(like: torch.Tensor) -> torch.Tensor:
            check_randomness([name])
            return torch.randn_like(like)

        own_noise = self.by_rows and not self.is_mean and name not in self.shared_draws
        return Site(name, loc, scale, normal, is_mean=self.is_mean, may_use_row_noise=own_noise)

    def masked_site(self, name: str, masks: Any) -> MaskedSite:
        """Return a weight whose posterior draws masks."""

        def noise(shape: tuple[int, ...]) -> torch.Tensor:
            check_randomness([name])
            return masks.noise(shape)

        may_share = name not in self.shared_draws
        return MaskedSite(name, masks, noise, is_mean=self.is_mean, may_share=may_share)


def check_randomness(sites: Iterable[str]) -> None:
    """Raise the error that names the sites where a vmap of the user's forbids draws."""
    if vmap_forbids_randomness():
        raise vmap_error(sites)


Tensor = torch.Tensor
LAZY_RULES: FunctionRegistry[Callable] = (
    FunctionRegistry()
)  # rules that keep values undrawn, from .lazy_rules
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


class _Undrawn(Shell):
    """A tensor-like object that is drawn when a function needs its values."""

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Return the result of a rule that needs no draw; draw for any other function."""
        return dispatch(func, args, kwargs or {})


class Undrawn(_Undrawn):
    """Tensor-like shell of a site that is not drawn yet; its elements may have been moved."""

    site: Site
    # Functions that move elements, in the order of application.
    rearrangements: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    loc: torch.Tensor

    @staticmethod
    def __new__(cls, site: Site, rearrangements: tuple[Callable, ...] = ()) -> Undrawn:
        """Make the shell of a site with its elements moved."""
        loc = _rearranged(site.loc, rearrangements)
        return super().__new__(cls, loc, site=site, rearrangements=rearrangements, loc=loc)

    @property
    def scale(self) -> torch.Tensor:
        """Return the standard deviations, with their elements moved."""
        return self.rearrange(self.site.scale)

    def draw(self) -> torch.Tensor:
        """Return the draw of the site, with its elements moved."""
        return self.rearrange(self.site.draw())

    def rearrange(self, tensor: torch.Tensor) -> torch.Tensor:
        """Apply the moves to a tensor that has the shape of the site."""
        return _rearranged(tensor, self.rearrangements)


def _rearranged(tensor: torch.Tensor, rearrangements: tuple[Callable, ...]) -> torch.Tensor:
    for move in rearrangements:
        tensor = move(tensor)
    return tensor


class Rows(_Undrawn):
    """Tensor-like shell of draws in which each row has noise of its own."""

    axis: int  # of the rows, negative
    sites: frozenset[str]  # names of the weights whose noise is in the draws


class UndrawnRows(_Undrawn):
    """Tensor-like shell of the outputs of a random weight, with noise of their own for each row."""

    # The tensor holds the means.
    variance_: torch.Tensor
    sites: tuple[Site, ...]  # whose noise it is
    has_rows: bool  # whether the leading axis is of rows; if not, there is one row
    input_sites: frozenset[str] = frozenset()  # names of the weights whose noise is in the inputs
    _draw: Any = None

    def draw(self) -> Any:
        """Return the one draw of the outputs."""
        if self._draw is None:
            check_randomness(site.name for site in self.sites)
            noise = torch.randn_like(self.tensor)
            output = mean_field.sample(self.tensor, standard_deviation(self.variance_), noise)
            self._draw = in_rows(output, self.has_rows, self.input_sites, self.sites)
        return self._draw


def in_rows(output: torch.Tensor, has_rows: bool, input_sites: frozenset[str], sites: Any) -> Any:
    """Return the outputs of a map by random weights, as Rows if there are several rows."""
    if not has_rows or len(output) == 1:
        return output
    names = input_sites.union(site.name for site in sites)
    return Rows(output, axis=-output.dim(), sites=names)


def dispatch(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Return the result of a torch function of which some arguments are not drawn yet."""
    if func in METADATA:
        return call_plainly(func, args, kwargs)
    if func in _LIKE and isinstance(args[0], Undrawn):
        return func(args[0].loc, *args[1:], **kwargs)
    rule = LAZY_RULES.get(func)
    result = None if rule is None else rule(*args, **kwargs)
    return _by_rows(func, draw_all(args), draw_all(kwargs)) if result is None else result


def _by_rows(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Call a function of draws; return Rows for Rows; raise if rows may mix."""
    sites = sites_of_rows((args, kwargs))
    if not sites:
        return func(*args, **kwargs)
    axis = _axis(func, _with_row_axes(args), _with_row_axes(kwargs))
    if axis is None:
        raise SharedDrawNeeded(sites)
    result = func(*without_rows(args), **without_rows(kwargs))
    if isinstance(result, tuple | list):
        pairs = zip(args, result, strict=True)  # each result is an operand, broadcast
        return type(result)(
            Rows(part, axis=axis, sites=sites) if isinstance(operand, Rows) else part
            for operand, part in pairs
        )
    return Rows(result, axis=axis, sites=sites)


def _axis(func: Callable, args: tuple, kwargs: dict) -> int | None:
    """Return the axis of the rows in a result; None if rows may be mixed."""
    rule = RULES.get(func)
    if rule is None:
        return None
    try:
        return rule(*args, **kwargs)
    except TypeError:  # the rule does not know this signature
        return None


def sites_of_rows(argument: Any) -> frozenset[str]:
    """Return the names of the weights whose noise is in the rows of an argument."""
    if isinstance(argument, Rows):
        return argument.sites
    if type(argument) is dict:
        argument = list(argument.values())
    if type(argument) in (tuple, list):
        return frozenset().union(*map(sites_of_rows, argument))
    return frozenset()


def _mapped(argument: Any, change: Callable[[Rows], Any]) -> Any:
    if isinstance(argument, Rows):
        return change(argument)
    if type(argument) in (tuple, list):
        return type(argument)(_mapped(part, change) for part in argument)
    if type(argument) is dict:
        return {name: _mapped(part, change) for name, part in argument.items()}
    return argument


def _with_row_axes(argument: Any) -> Any:
    return _mapped(argument, lambda rows: WithRowAxis(rows.tensor, rows.axis))


def without_rows(argument: Any) -> Any:
    """Replace Rows in an argument by their tensors."""
    return _mapped(argument, lambda rows: rows.tensor)


def draw_all(argument: Any) -> Any:
    """Replace undrawn values in an argument by their draws."""
    if isinstance(argument, Undrawn | UndrawnRows):
        return argument.draw()
    if type(argument) in (tuple, list):
        return type(argument)(map(draw_all, argument))
    if type(argument) is dict:
        return {name: draw_all(part) for name, part in argument.items()}
    return argument
