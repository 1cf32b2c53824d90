"""The table of moment rules by torch functions, and the decorators that register them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Composite, Deferred, Gaussian


class MeanCheck:
    """The outcome of a comparison of random values, evaluated at their means.

    Only the validation of distributions may use it: a program that branches on a random
    value has no moments. The comparison as a random number is :meth:`condition`.
    """

    __slots__ = ("_compare", "outcome", "sites")

    def __init__(
        self,
        outcome: torch.Tensor,
        sites: frozenset[str],
        compare: Callable[[], Any] | None = None,
    ) -> None:
        self.outcome, self.sites, self._compare = outcome, sites, compare

    def condition(self) -> Any:
        """Return a Condition, or a tensor of booleans if the outcome is certain."""
        if self._compare is None:
            return self.gaussian()
        comparison = self._compare()
        if isinstance(comparison, ops.Condition):
            return comparison
        return torch.as_tensor(comparison, device=self.outcome.device)

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the outcome."""
        return self.outcome.shape

    def gaussian(self) -> Any:
        """Raise UnsupportedMoments: the outcome is random, and its value at the mean is wrong."""
        raise UnsupportedMoments(
            "the outcome of a comparison with a random value is random",
            sites=self.sites,
            remedy="use torch.relu, torch.heaviside, torch.where or (h > 0).float() instead of a "
            "mask, or draw the sites by naming them in sample_sites=",
        )


class RandomPlaces(MeanCheck):
    """The places of the largest entries of random values, which no operation takes."""

    @classmethod
    def of(cls, value: Any) -> RandomPlaces:
        """Return the places for largest entries of these moments."""
        return cls(
            torch.zeros(tuple(value.shape), dtype=torch.int64, device=value.at_mean.device),
            value.sites,
        )

    def gaussian(self) -> Any:
        """Raise UnsupportedMoments: the places are random."""
        raise UnsupportedMoments(
            "the place of the largest or smallest of random entries is random",
            sites=self.sites,
            remedy="use the values alone, or decide on the predictive moments, outside of the "
            "model" + errors.OR_DRAW,
        )


RULES: dict[Callable, Callable] = {}
IN_PLACE: set[Callable] = set()
VIEWS: set[Callable] = set()
_OUTCOMES = (Composite, MeanCheck)
_TAKEN = {torch.Tensor, Gaussian, Deferred, int, float, bool, type(None)}  # by every rule
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}  # torch's functions take these, too


def moment_rule(
    *functions: Callable, takes: tuple[type, ...] = (), in_place: bool = False, view: bool = False
) -> Callable[[Callable], Callable]:
    """Register a rule for torch functions.

    The rule is called with the arguments of the function, and with the value of every
    :class:`~pyro_moments.MomentTensor` in its place; it returns a value, a tuple of
    values, or a plain tensor.

    Args:
        functions: as ``__torch_function__`` receives them, e.g. ``torch.relu`` and
            ``torch.Tensor.relu``; see :func:`named`.
        takes: types of outcomes of comparisons and of functions of logits that the rule
            gets unchanged. It gets the moments of other functions of logits; for other
            outcomes UnsupportedMoments is raised.
        in_place: whether the functions change their first argument; the rule itself does
            not.
        view: whether the result shares its memory with the first argument.

    Returns:
        The decorator.
    """

    def register(rule: Callable) -> Callable:
        checked = _checked(rule, takes)
        for function in functions:
            RULES[function] = checked
        IN_PLACE.update(functions if in_place else ())
        VIEWS.update(functions if view else ())
        return rule

    return register


def _checked(rule: Callable, takes: tuple[type, ...]) -> Callable:
    """Return the rule with a check of its arguments."""
    signature = inspect.signature(rule)
    names = {theirs: ours for theirs, ours in NUMPY_NAMES.items() if ours in signature.parameters}

    def renamed(name: str) -> str:
        return name if name in signature.parameters else names.get(name, name)

    @functools.wraps(rule)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not _TAKEN.issuperset(map(type, args)):
            args = tuple([_operand(argument, takes) for argument in args])
        if kwargs:
            kwargs = {renamed(name): _operand(part, takes) for name, part in kwargs.items()}
        try:
            return rule(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, UnsupportedMoments):
                raise
            raise _argument_error(signature, args, kwargs, error) from error

    return checked


def _operand(operand: Any, takes: tuple[type, ...]) -> Any:
    """Return an operand as the rule takes it; comparisons raise UnsupportedMoments."""
    kind = type(operand)
    if kind is tuple or kind is list:
        return kind([_operand(part, takes) for part in operand])
    if isinstance(operand, _OUTCOMES) and not isinstance(operand, takes):
        return operand.gaussian()
    return operand


def _argument_error(signature: inspect.Signature, args: tuple, kwargs: dict, error: TypeError):
    """Return the error for arguments that the rule does not take, else the original."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        return UnsupportedMoments(
            f"its moment rule does not take these arguments ({mismatch})",
            sites=errors.sites_of(*args, *kwargs.values()),
            remedy="call it with fewer options, or register a rule with @pyro_moments.moment_rule"
            + errors.OR_DRAW,
        )
    return error


def named(*names: str) -> tuple[Callable, ...]:
    """Return functions of these names in torch, its functional module and Tensor."""
    modules = (torch, torch.nn.functional)
    return tuple(
        getattr(owner, name)
        for name in names
        for owner in ((torch.Tensor,) if name.startswith("__") else (*modules, torch.Tensor))
        if hasattr(owner, name)
    )


def torch_functions(*names: str) -> tuple[Callable, ...]:
    """Return functions of these names, also those of torch's special functions."""
    special = [getattr(torch.special, name, None) for name in names]
    return (*named(*names), *(function for function in special if function))


def named_rule(names: str, *takes: type, summary: str = "") -> Callable[[Callable], Callable]:
    """Register a rule for functions of these names and for their variants in place."""
    # Names are apart by spaces; types in ``takes`` come unchanged, but not in place; ``summary``
    # says what a rule serves that a table made.
    ours = names.split()
    in_place = [f"__i{name[2:]}" if name.startswith("__") else f"{name}_" for name in ours]

    def register(rule: Callable) -> Callable:
        if summary:
            rule.__name__ = rule.__qualname__ = ours[0]
            rule.__doc__ = f"Serve {summary}."
        moment_rule(*torch_functions(*ours), takes=takes)(rule)
        moment_rule(*torch_functions(*in_place), in_place=True)(rule)
        return rule

    return register


def refused(names: str, reason: str, remedy: str, *, summary: str) -> None:
    """Register a rule that raises UnsupportedMoments with a reason and a remedy."""

    def rule(input: Any, *_: Any, **__: Any) -> None:
        raise UnsupportedMoments(reason, sites=input.sites, remedy=remedy)

    rule.__doc__ = f"Refuse {summary}."
    moment_rule(*named(*names.split()))(rule)
