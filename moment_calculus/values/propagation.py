"""Options of a propagation and rule books, which choose the moment rules."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, TypeVar

from moment_calculus.functions.table import ACTIVATIONS

COVARIANCES = ("full", "backward", "diagonal")
CATEGORICAL_METHODS = ("points", "pairs", "tilted", "jensen", "delta", "sample")
OF_PREDICTIONS = ("logistic", "normal", "simplified", "taylor")  # for predictions alone
MOST_NESTED = 3  # products of dependent values in place of which nothing is drawn
Key = TypeVar("Key")
_REPLACEABLE_OPERATIONS: set[str] = set()  # names of operations that ask rule books for a rule


def register_replaceable(operation: str) -> str:
    """Register the name of an operation that asks :meth:`Propagation.replacement` for a rule."""
    _REPLACEABLE_OPERATIONS.add(operation)
    return operation


def replaceable_operations() -> list[str]:
    """Return the names of operations that ask for a rule."""
    return sorted(_REPLACEABLE_OPERATIONS)


@dataclass(frozen=True)
class RuleBook:
    """A set of moment rules; by default every operation uses its own, exact rule.

    The step that applies a function asks the book for the function with its moments, gain
    and pair covariances; an operation asks it for a rule that replaces its own. The books of the
    library are in :mod:`moment_calculus.rulebooks`.

    Args:
        name: how users select it.
        mehler_order: number of terms of the Mehler series where that is used.
        operations: rules that replace those of operations, by the name of an operation
            that asks for one, such as ``product`` of two Gaussians, ``linear`` map of a
            Gaussian by Gaussian weights. Each takes the arguments of the operation, but for
            ``largest`` (of windows), which combines the moments of two entries, ``softmax``,
            which gives logarithms of mean probabilities, and ``categorical``, a rule for
            classes. An unknown name is an error as soon as the
            book is used.
        functions: rules for single functions, by the name of the function, such as
            ``sigmoid``. Each takes the function and returns what :meth:`ruled` returns.
        covariances: the modes that the book has rules for; others are refused.
        derive: whether the gain and the pairs of a function whose moments alone are changed
            follow from these; else the function is refused unless covariance="diagonal".
    """

    name: str = "exact"
    mehler_order: int = 32
    operations: Mapping[str, Any] = field(default_factory=dict, hash=False)
    functions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict, hash=False)
    covariances: Collection[str] = COVARIANCES
    derive: bool = True

    def ruled(self, function: Any) -> Any:
        """Return the activation whose moments follow this book.

        Args:
            function: an activation with its exact moments; a whole chain if it is part of
                one.

        Returns:
            Another activation, such as a
            :class:`moment_calculus.functions.base.Delegating` one.
        """
        return function

    @property
    def is_exact(self) -> bool:
        """Whether every function keeps its exact moments."""
        return type(self).ruled is RuleBook.ruled and not self.functions

    @property
    def is_bound(self) -> bool:
        """Whether the means of all functions are exact, so that no optimiser can lower them."""
        return self.is_exact and not self.operations

    @property
    def has_terms(self) -> bool:
        """Whether the book adds terms to the loss, by :meth:`term`."""
        return type(self).term is not RuleBook.term

    def term(self, function: Any, mean: Any, variance: Any) -> Any:
        """Return what the ELBO loses where the book replaces a function.

        Args:
            function: the activation with its exact moments.
            mean: mean of its argument.
            variance: variance of its argument, of the same shape.

        Returns:
            Array of that shape, in nats, which is summed over all elements, with the scale
            and the mask of the observed site that it leads to; None for no term.
        """
        return None

    def rule_for(self, function: Any) -> Any:
        """Return the function by the rule for its name if there is one, else by :meth:`ruled`."""
        rule = self.functions.get(function.name) or self._rule_for_equal(function)
        return self.ruled(function) if rule is None else rule(function)

    def _rule_for_equal(self, function: Any) -> Any:
        """Return the rule for a name whose function, without parameters, is this one."""
        names = (name for name in self.functions if _plain_activation(name) == function)
        return next((self.functions[name] for name in names), None)

    def replacing(self, **rules: Callable[..., Any]) -> RuleBook:
        """Return this book with other rules for some functions and operations.

        Args:
            rules: by the name of a function, such as ``sigmoid``, a callable that takes it
                and returns it with other moments, such as a subclass of
                :class:`moment_calculus.functions.base.Delegating`; by the name of an
                operation that asks for a rule, such as ``product``, what takes its place.

        Returns:
            A new book, named after this one and what it replaces.

        Raises:
            ValueError: a name is neither that of a function nor of such an operation.
        """
        functions, operations = dict(self.functions), dict(self.operations)
        candidates = sorted({*ACTIVATIONS, *replaceable_operations()})
        for name, rule in rules.items():
            check_choice("rule", name, candidates)
            (operations if name in _REPLACEABLE_OPERATIONS else functions)[name] = rule
        name = f"{self.name} with another {' and '.join(rules)}"
        return replace(self, name=name, functions=functions, operations=operations)


EXACT = RuleBook()


@cache
def _plain_activation(name: str) -> Any:
    """Return the activation of a name without parameters; None if it needs some."""
    try:
        return ACTIVATIONS[name]()
    except (KeyError, TypeError):
        return None


@cache
def half_of_memory() -> float:
    """Return half of the physical memory in bytes; 8 GiB if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    except (AttributeError, OSError, ValueError):
        return 2.0**33


@dataclass(frozen=True)
class Propagation:
    """The options of a propagation: which covariances are carried, by which rules."""

    covariance: str = "full"  # over the feature axis; others: variances only
    rulebook: RuleBook = EXACT
    # how class likelihoods are approximated, see likelihoods.classes; None for the book's rule
    categorical: str | None = None
    memory_limit: float = field(default_factory=half_of_memory)  # bytes of one covariance
    categorical_draws: int = 1  # draws of the logits, if these are sampled
    by_guide: bool = False  # whether a guide may name another covariance
    # products of dependent values, each of another, that are taken as Gaussian; others are refused
    nested_products: float = math.inf

    def __post_init__(self) -> None:
        """Raise ValueError if an option is not valid."""
        for option, candidates in (
            ("covariance", COVARIANCES),
            ("categorical", (None, *CATEGORICAL_METHODS, *OF_PREDICTIONS)),
        ):
            check_choice(option, getattr(self, option), candidates)
        for name in self.rulebook.operations:
            check_choice("operation", name, replaceable_operations())
        if self.covariance not in self.rulebook.covariances:
            raise ValueError(
                f"the rule book {self.rulebook.name!r} has no rules for "
                f"covariance={self.covariance!r}; it has those for "
                f"{', '.join(sorted(self.rulebook.covariances))}, and 'exact' for all"
            )
        if not self.memory_limit > 0:
            raise ValueError(f"memory_limit={self.memory_limit} must be positive")
        if self.categorical_draws < 1:
            raise ValueError(f"categorical_draws={self.categorical_draws} must be at least 1")

    def of_guide(self, guide: Any) -> Propagation:
        """Return these options with the covariance that a guide names, if the user named none."""
        named = getattr(guide, "default_covariance", None) if self.by_guide else None
        return self if named in (None, self.covariance) else replace(self, covariance=named)

    def beside_draws(self) -> Propagation:
        """Return these options where held draws stand in for what is refused.

        They are closer, and sooner there, than many approximate products.
        """
        return replace(self, nested_products=MOST_NESTED)

    @cached_property
    def is_backward(self) -> bool:
        """Return whether covariances of what is asked for are computed backwards."""
        return self.covariance == "backward"

    @cached_property
    def may_sweep(self) -> bool:
        """Return whether a sweep backwards gives what the forward sweep does not carry."""
        return self.covariance != "diagonal"

    @cached_property
    def has_full_covariance(self) -> bool:
        """Return whether covariances over the feature axis are carried."""
        return self.covariance == "full"

    def replacement(self, operation: str) -> Any:
        """Return the book's replacement rule for an operation, or None."""
        return self.rulebook.operations.get(operation)


def check_choice(option: str, choice: Any, candidates: Collection[str | None]) -> None:
    """Raise ValueError if the user's choice for an option is not one of the candidates."""
    if choice not in candidates:
        raise ValueError(f"{option}={choice!r} is not one of {', '.join(filter(None, candidates))}")


def check_draws(sample_sites: Collection[str], num_particles: int) -> None:
    """Raise ValueError if sites are given as one string, or there are no draws."""
    if isinstance(sample_sites, str):
        raise ValueError(f"sample_sites is a collection of names: sample_sites=[{sample_sites!r}]")
    if num_particles < 1:
        raise ValueError(f"num_particles={num_particles} must be at least 1")


class FunctionRegistry(dict[Key, Callable]):
    """A dictionary from keys to functions, filled by a decorator."""

    registrations = 0  # in all registries: programs that were compiled before may be wrong

    def register(self, *keys: Key) -> Callable[[Callable], Callable]:
        """Return the decorator that registers a function for the given keys."""

        def decorate(function: Callable) -> Callable:
            self.update(dict.fromkeys(keys, function))
            FunctionRegistry.registrations += 1
            return function

        return decorate


class ClassRegistry(FunctionRegistry[type]):
    """Functions by class; lookup follows an object's method resolution order."""

    def function_for(self, instance: Any) -> Callable | None:
        """Return the function of an object's nearest registered class, None if there is none."""
        registered = self.registered_class(instance)
        return None if registered is None else self[registered]

    def registered_class(self, instance: Any) -> type | None:
        """Return the nearest registered class of an object, None if there is none."""
        return next((cls for cls in type(instance).__mro__ if cls in self), None)
