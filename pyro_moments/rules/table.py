"""The rule table: which moment rule serves which torch function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from moment_calculus.composites import Composite
from moment_calculus.errors import UnsupportedMoments
from pyro_moments.checks import MeanCheck

RULES: dict[Callable, Callable] = {}
IN_PLACE: set[Callable] = set()
VIEWS: set[Callable] = set()


def moment_rule(
    *functions: Callable, takes: tuple[type, ...] = (), in_place: bool = False, view: bool = False
) -> Callable[[Callable], Callable]:
    """Register a rule for torch functions.

    The rule is called as the function is, with every :class:`~pyro_moments.MomentTensor` replaced
    by the value it holds; it returns a value, a tuple of values, or a plain tensor.

    Args:
        functions: as ``__torch_function__`` receives them, e.g. ``torch.relu`` and
            ``torch.Tensor.relu``; see :func:`named`.
        takes: which of the values without moments of their own the rule understands: outcomes of
            comparisons and functions of logits. Others are refused before it is called.
        in_place: whether the functions change their first argument; the rule itself does not.
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
    """The rule, after a look at what it is given."""
    signature = inspect.signature(rule)

    @functools.wraps(rule)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for operand in _without_moments((*args, *kwargs.values())):
            if not isinstance(operand, takes):
                operand.gaussian()  # which refuses
        try:
            return rule(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, UnsupportedMoments):
                raise
            raise _rejected(signature, args, kwargs, error) from error

    return checked


def _without_moments(operands: Iterable[Any]) -> Iterator[Composite | MeanCheck]:
    for operand in operands:
        if isinstance(operand, Composite | MeanCheck):
            yield operand
        elif isinstance(operand, tuple | list):
            yield from _without_moments(operand)


def _rejected(signature: inspect.Signature, args: tuple, kwargs: dict, error: TypeError):
    """Tell arguments that the rule does not take from a mistake of the user's."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        return UnsupportedMoments(
            f"its moment rule does not take these arguments ({mismatch})",
            sites=[site for a in (*args, *kwargs.values()) for site in getattr(a, "sites", ())],
            remedy="call it with fewer options, or register a rule with @pyro_moments.moment_rule",
        )
    return error


def named(*names: str) -> tuple[Callable, ...]:
    """Functions and methods of these names in torch, torch.nn.functional and torch.Tensor.

    Args:
        names: such as ``"relu"`` or ``"__add__"``.
    """
    modules = (torch, torch.nn.functional)
    return tuple(
        getattr(owner, name)
        for name in names
        for owner in ((torch.Tensor,) if name.startswith("__") else (*modules, torch.Tensor))
        if hasattr(owner, name)
    )
