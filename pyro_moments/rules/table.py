"""The table of moment rules, and the rules by which distributions validate their parameters."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import torch

from moment_calculus.errors import OR_DRAW, UnsupportedMoments, called_by, sites_of
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Deferred, Gaussian, Value
from moment_calculus.values.deferred import Composite
from pyro_moments import _host


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
        found = self._compare()
        if isinstance(found, ops.Condition):
            return found
        return torch.as_tensor(found, device=self.outcome.device)

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
            "model" + OR_DRAW,
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
            sites=sites_of(*args, *kwargs.values()),
            remedy="call it with fewer options, or register a rule with @pyro_moments.moment_rule"
            + OR_DRAW,
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
    """Register a rule for functions of these names and for their variants in place.

    Args:
        names: apart by spaces.
        takes: types that the rule gets unchanged, but not in place.
        summary: what is served, for a rule that a table made.
    """
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


DEPTH = 8  # frames between a rule and the line that called the function


def fills_in_ordered_logistic() -> bool:
    """Return whether the constructor of Pyro's ``OrderedLogistic`` fills in its probabilities.

    The call does not show it: the target is a plain tensor, as in a user's assignment,
    which is not supported. Frames are compared with the constructor's code object, so
    that Pyro stays unchanged.
    """
    frame, constructor = sys._getframe(1), dist.OrderedLogistic.__init__.__code__
    for _ in range(DEPTH):
        if frame is None or frame.f_code is constructor:
            return frame is not None
        frame = frame.f_back  # type: ignore[assignment]
    return False


@moment_rule(torch.Tensor.__setitem__)
def setitem(input: Any, key: Any, value: Any) -> None:
    """Serve the constructor of ``OrderedLogistic``, which fills in probabilities."""
    if not fills_in_ordered_logistic():
        raise UnsupportedMoments(
            "a part of a tensor cannot become random in place",
            sites=getattr(value, "sites", getattr(input, "sites", ())),
            remedy="build the tensor with torch.index_put(x, (mask,), values) or torch.cat",
        )
    # The likelihood's rule starts from the predictor; NaN keeps others from using these.
    input[key] = torch.nan


def _at_mean(operand: Any) -> Any:
    return getattr(operand, "at_mean", operand)


def _comparison(kind: str, holds: Callable) -> Callable:
    def rule(input: Any, other: Any) -> MeanCheck:
        outcome = holds(_at_mean(input), _at_mean(other))
        random = lambda: ops.compare(kind, *map(_moments_of, (input, other)))  # noqa: E731
        return MeanCheck(outcome, sites_of(input, other), random)

    return rule


def _moments_of(operand: Any) -> Any:
    return operand.gaussian() if isinstance(operand, Composite) else operand


# Comparisons by their names in Python and in torch.
_COMPARISONS = {
    "eq": "eq __eq__",
    "ne": "ne not_equal __ne__",
    "gt": "gt greater __gt__",
    "ge": "ge greater_equal __ge__",
    "lt": "lt less __lt__",
    "le": "le less_equal __le__",
}
for _kind, _names in _COMPARISONS.items():
    moment_rule(*named(*_names.split()), takes=(Composite,))(
        _comparison(_kind, ops.OPERATORS[_kind])
    )


def _combination(holds: Callable, of_conditions: Callable) -> Callable:
    """Return the rule that combines outcomes of comparisons, and certain booleans."""

    def combine(*operands: Any) -> Any:
        parts = [part.condition() if isinstance(part, MeanCheck) else part for part in operands]
        random = any(isinstance(part, ops.Condition) for part in parts)
        return of_conditions(*parts) if random else holds(*parts)

    def rule(*operands: Any) -> MeanCheck:
        for operand in operands:
            if hasattr(operand, "sites"):
                _require_check(operand)
        outcomes = (getattr(operand, "outcome", operand) for operand in operands)
        return MeanCheck(holds(*outcomes), sites_of(*operands), lambda: combine(*operands))

    return rule


# Combinations by operator and by their names; constraints to an interval use the first.
for _holds, _of_conditions, _names in (
    (operator.and_, ops.logical_and, "__and__ __rand__ logical_and bitwise_and"),
    (operator.or_, ops.logical_or, "__or__ __ror__ logical_or bitwise_or"),
    (operator.xor, ops.logical_xor, "__xor__ __rxor__ logical_xor bitwise_xor"),
    (operator.invert, ops.logical_not, "__invert__ logical_not bitwise_not"),
):
    moment_rule(*named(*_names.split()), takes=(MeanCheck,))(_combination(_holds, _of_conditions))


@moment_rule(*named("all"), takes=(MeanCheck,))
def all_true(input: MeanCheck, dim: int | None = None, keepdim: bool = False) -> Any:
    """Serve constraints of vectors, which hold if every component's does, and their validation."""
    _require_check(input)
    if dim is not None:
        return MeanCheck(input.outcome.all(dim, keepdim), input.sites)
    if not called_by("torch.distributions.geometric"):  # which validates itself by all()
        raise _random_truth(input)
    return input.outcome.all()


def least_truth(input: MeanCheck, dim: int) -> tuple[MeanCheck, None]:
    """Return the minima of truth values, which constraints of Cholesky factors take."""
    _require_check(input)
    return MeanCheck(input.outcome.min(dim)[0], input.sites), None


@moment_rule(_host.is_all_true, takes=(MeanCheck,))
def is_all_true(input: MeanCheck) -> torch.Tensor:
    """Serve the validation of distribution parameters."""
    _require_check(input)
    return _host.is_all_true(input.outcome)


def _require_check(operand: Any) -> None:
    if not isinstance(operand, MeanCheck):
        raise _random_truth(operand)


def _random_truth(operand: Any) -> UnsupportedMoments:
    return UnsupportedMoments(
        "the truth of a random value is random",
        sites=operand.sites,
        remedy="do not branch on random values" + OR_DRAW,
    )


@moment_rule(*named("cholesky"), torch.linalg.cholesky)
def cholesky(input: Any) -> Any:
    """Serve covariances of a vector of scales and an LKJ prior; refuse others."""
    return ops.cholesky(input)


@moment_rule(torch.linalg.cholesky_ex)
def cholesky_ex(input: Any) -> Any:
    """Serve the validation of covariance matrices."""
    factor = ops.cholesky(input)
    success = torch.zeros(factor.shape[:-2], dtype=torch.int, device=factor.mean.device)
    kind: Any = torch.return_types
    return kind.linalg_cholesky_ex((factor, success))


@moment_rule(*named("isclose"))
def isclose(input: Any, other: Any, **options: Any) -> Any:
    """Serve the validation of covariance matrices, which are symmetric; refuse all others."""
    ops.cholesky(input)
    return torch.isclose(input.at_mean, _at_mean(other), **options)


@moment_rule(*named("tril"))
def tril(input: Value, diagonal: int = 0) -> Value:
    """Serve ``tril``; refuse unknown Cholesky factors, which distributions validate so."""
    if called_by("torch.distributions.constraints"):
        ops.require_factor(input)
    return ops.scale_shift(input, torch.ones_like(input.at_mean).tril(diagonal))
