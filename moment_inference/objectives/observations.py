"""Check observations where their values are known: finite, in the support, of the site's shape."""

from __future__ import annotations

import math
import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import namespace

OPEN = ("Beta",)  # families whose densities do not exist at the ends of their support
NOT_FINITE = "NaN or infinite"
REMEDY = (
    "leave such rows out, impute them, or hide them by a mask ({mask}(mask=...)); NaN in an input "
    "that a mask hides still enters the gradients: replace it by any number ({nan_to_num}), or "
    "pass Moments.missing(x)"
)


class Observation(NamedTuple):
    """What a check needs of an observed site; values that are not known are None."""

    name: str
    family: str  # of the distribution, inside its wrappers
    is_own: bool  # whether the family is one of a user, whose support may be unusual
    shape: tuple[int, ...]  # of the distribution: batch and event
    value_shape: tuple[int, ...]
    value: np.ndarray | None
    inside: np.ndarray | None  # whether elements are in the support
    mask: np.ndarray | None  # what counts, of the batch shape of the family or broadcastable
    plates: Mapping[int, int]  # sizes of the plates by their axes, which are negative
    event_dims: tuple[int, int]  # of the distribution, and of the family inside its wrappers
    support: Any


# Whether a program has been seen that should have observations; None outside of ``fit``.
_expected: ContextVar[list[bool] | None] = ContextVar("expected", default=None)


@contextmanager
def expecting_observations() -> Iterator[None]:
    """Warn once in this context if a program observes nothing."""
    token = _expected.set([])
    try:
        yield
    finally:
        _expected.reset(token)


class Observations(ABC):
    """Checks the observations of a program, each array once."""

    framework: str
    mask, nan_to_num = "", ""  # names of the framework's functions

    def __init__(self) -> None:
        self._checked: dict[str, tuple[Any, Any]] = {}  # by site: the last array, its version

    @abstractmethod
    def known(self, data: Any) -> np.ndarray | None:
        """Return an array of NumPy; None for random values, and inside a traced program."""

    @abstractmethod
    def is_observation(self, site: Any) -> bool:
        """Return whether a site has observations, or is a factor."""

    @abstractmethod
    def parts_of(self, name: str, site: Any) -> Observation | None:
        """Return what can be checked of a site; None of factors."""

    @abstractmethod
    def mask_of(self, site: Any) -> Any:
        """Return the mask of a site by element of its batch; None if there is none."""

    @abstractmethod
    def masks_of(self, site: Any) -> tuple[list[tuple[Any, int]], int]:
        """Return arrays of masks and the event axes inside each, and those of the family."""

    def mask_inside(self, site: Any) -> Any:
        """Return the mask of a site by element of the batch of its family; None if there is none.

        That batch has the axes that wrappers make events of, inside or outside of the mask.
        """
        masks, inner = self.masks_of(site)
        if not masks:
            return None
        fn = site["fn"]
        shape = (*fn.batch_shape, *fn.event_shape[: len(fn.event_shape) - inner])
        whole = reduce(operator.and_, (over_events(mask, dims - inner) for mask, dims in masks))
        try:
            return namespace(whole).broadcast_to(whole, shape)
        except (ValueError, RuntimeError):  # the mask has axes that the site has not
            return None

    @abstractmethod
    def arrays(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
        """Yield the framework's arrays among a model's arguments, with names."""

    def accepted(self, site: Any) -> Any:
        """Return the observations of a site as rules and its own ``log_prob`` take them."""
        return site["value"]

    def observe(self, sites: Mapping[str, Any], model: Callable, args: tuple, kwargs: dict) -> None:
        """Check the observations of a model, and give those that a mask hides a valid value."""
        observed = {name: site for name, site in sites.items() if self.is_observation(site)}
        for name, site in observed.items():
            given = site["value"]
            if not self._is_checked(name, given) and (parts := self.parts_of(name, site)):
                try:
                    self.check(parts)
                except UnsupportedMoments:
                    names = [n for n, part in self.arrays(model, args, kwargs) if part is given]
                    self.check(parts, f" (argument '{names[0]}')" if names else "")
                self._remember(name, given)
            site["value"] = self.prepared(site)
        if (seen := _expected.get()) is not None and not seen:
            seen.append(True)
            if not observed:
                warn_unobserved(sites)

    def prepared(self, site: Any) -> Any:
        """Return the observations of a site, with a valid value where a mask hides them."""
        value, mask = self.accepted(site), self.mask_inside(site)
        return value if mask is None else filled(value, mask, self.masks_of(site)[1])

    def check(self, site: Observation, argument: str = "") -> None:
        """Raise UnsupportedMoments for observations that a distribution does not take."""
        check_shape(site, argument)
        if site.value is None or site.is_own:
            return
        counts = np.True_ if site.mask is None else over_events(site.mask, site.event_dims[1])
        if site.value.dtype.kind == "f" and (~np.isfinite(site.value) & counts).any():
            self.refuse_infinite(f"the data of observed site '{site.name}'{argument}", site.value)
        if site.inside is not None:
            self._check_support(site, argument)
        if site.family in OPEN:
            self._check_ends(site, argument)

    def refuse_infinite(self, what: str, data: Any, error: Exception | None = None) -> None:
        """Raise UnsupportedMoments if data have NaN or infinite elements."""
        if data is None or data.dtype.kind != "f" or np.isfinite(data).all():
            return
        bad = np.argwhere(~np.isfinite(data))
        raise UnsupportedMoments(
            f"{what} has {len(bad)} {NOT_FINITE} element(s) of {data.size}, the first "
            f"{in_words(bad[0])}",
            remedy=REMEDY.format(mask=self.mask, nan_to_num=self.nan_to_num),
        ) from error

    def check_function(self, function: Any, inputs: Iterable[Any]) -> None:
        """Raise TypeError or ValueError if ``propagate`` cannot run a function of moments."""
        if isinstance(function, type) or not callable(function):
            kind = function if isinstance(function, type) else type(function)
            raise TypeError(
                f"propagate takes a function and then its inputs, got {kind.__name__}: call "
                "propagate(function, moments), with an object of a class such as nn.Linear(3, 5)"
            )
        for moments in inputs:
            check_variances(self.known(moments.variance))

    def _check_support(self, site: Observation, argument: str) -> None:
        assert site.inside is not None
        assert site.value is not None
        bad = ~site.inside & (np.True_ if site.mask is None else site.mask)
        if not bad.any():
            return
        index = np.argwhere(bad)[0]
        value = np.broadcast_to(site.value, (*bad.shape, *site.value.shape[bad.ndim :]))
        allowed, remedy = described(site.support, site.family)
        raise UnsupportedMoments(
            f"the data of observed site '{site.name}'{argument} have {int(bad.sum())} element(s) "
            f"of {bad.size} that {site.family} does not take, the first {value[tuple(index)]} "
            f"{in_words(index)}: it takes {allowed}",
            remedy=remedy,
        )

    def _check_ends(self, site: Observation, argument: str) -> None:
        """Raise UnsupportedMoments for data at 0 or 1, where a density is zero or infinite."""
        counts = np.True_ if site.mask is None else over_events(site.mask, site.event_dims[1])
        at_end = ((site.value == 0) | (site.value == 1)) & counts
        if not at_end.any():
            return
        first = np.argwhere(at_end)[0]
        raise UnsupportedMoments(
            f"the data of observed site '{site.name}'{argument} have {int(at_end.sum())} "
            f"element(s) of {at_end.size} that are 0 or 1, the first {in_words(first)}, where the "
            f"density of {site.family} is zero or infinite: move them inside, as by "
            "(y * (n - 1) + 0.5) / n of n rows",
            remedy="move them inside, or model them apart, by a Bernoulli site of 0, 1 and others",
        )

    def _is_checked(self, name: str, value: Any) -> bool:
        last, version = self._checked.get(name, (lambda: None, None))
        return last() is value and version == version_of(value)

    def _remember(self, name: str, value: Any) -> None:
        try:
            self._checked[name] = weakref.ref(value), version_of(value)
        except TypeError:  # numbers
            self._checked.pop(name, None)


def version_of(value: Any) -> Any:
    """Return how often torch has changed a tensor in place; None where nobody counts."""
    try:
        return getattr(value, "_version", None)
    except RuntimeError:  # in inference mode
        return None


def check_shape(site: Observation, argument: str) -> None:
    """Raise UnsupportedMoments if observations broadcast against their distribution."""
    shape, own = site.shape, site.value_shape
    what = f"the data of observed site '{site.name}'{argument} have shape {[*own]}"
    try:
        both = np.broadcast_shapes(shape, own)
    except ValueError:
        raise UnsupportedMoments(
            f"{what}, and the site has {[*shape]}",
            remedy="pass as many observations as rows of inputs",
        ) from None
    if both not in (shape, own):
        raise UnsupportedMoments(
            f"{what}, and the site has {[*shape]}, which would pair every observation with every "
            f"row, {[*both]}",
            remedy="remove the axis of size one, as by y[:, 0] or y.squeeze(-1), of the "
            "observations or of the parameters",
        )
    batch = shape[: len(shape) - site.event_dims[0]]
    stretched = [
        axis
        for axis in range(-len(batch), 0)
        if axis not in site.plates and batch[axis] in site.plates.values() and batch[axis] > 1
    ]
    if stretched and own != shape:
        raise UnsupportedMoments(
            f"{what}, and the site has {[*shape]} in plates of {[*site.plates.values()]}, which "
            "pairs every observation with every row",
            remedy="remove the axis of size one of its parameters, as by loc[:, 0] or "
            "loc.squeeze(-1)",
        )
    if own and math.prod(own) == 1 and math.prod(shape) > 1:
        raise UnsupportedMoments(
            f"{what}, and the site has {[*shape]}: one observation would count for every row",
            remedy="pass as many observations as rows of inputs",
        )


def check_variances(variance: np.ndarray | None) -> None:
    """Raise ValueError if one of the variances, unless they are not known, is negative."""
    if variance is not None and (variance < 0).any():
        first = np.argwhere(variance < 0)[0]
        raise ValueError(
            f"a variance is negative, {variance[tuple(first)]} {in_words(first)}: pass variances, "
            "which are squares of standard deviations"
        )


def in_words(index: Any) -> str:
    """Describe the index of an element by row and column."""
    numbers = [int(part) for part in index]
    if len(numbers) == 1:
        return f"in row {numbers[0]}"
    if len(numbers) == 2:
        return f"in row {numbers[0]}, column {numbers[1]}"
    return f"at index {tuple(numbers)}"


def described(support: Any, family: str) -> tuple[str, str]:
    """Return in words what a distribution takes, and what to do about other values."""
    lower, upper = (bound(support, name) for name in ("lower_bound", "upper_bound"))
    whole = bool(getattr(support, "is_discrete", False))
    if "oolean" in type(support).__name__:
        return "0 and 1", "code the two classes as 0 and 1"
    if "ategorical" in family and whole:
        return (
            f"labels from {lower} to {upper}",
            "count classes from 0, and give the logits as many columns as there are classes",
        )
    if lower is None:
        return f"elements of its support, {support}", "bring the data there, or use another family"
    numbers, above = ("whole numbers", "from") if whole else ("numbers", "above")
    between = f"{lower} to {upper}" if whole else f"between {lower} and {upper}"
    limits = f"{above} {lower}" if upper is None else between
    other = "NegativeBinomial2 or Normal" if whole and upper is None else "another family"
    return f"{numbers} {limits}", f"correct such rows, leave them out, or use {other}"


def bound(support: Any, name: str) -> Any:
    """Return a bound of a support as a number if it is one number, or its largest."""
    value = getattr(support, name, None)
    if value is None:
        return None
    try:
        number = np.asarray(value).max().item()
    except Exception:  # a bound that is random, or not known
        return "its bound"
    return int(number) if number == int(number) else number


def filled(value: Any, mask: Any, event_dim: int) -> Any:
    """Return observations with the first one that counts in place of those that a mask hides."""
    xp = namespace(value)
    shape = tuple(value.shape)
    batch = shape[: len(shape) - event_dim]
    if tuple(mask.shape) != batch or not batch or 0 in shape:  # a factor has no elements
        return value
    rows = xp.reshape(value, (-1, *shape[len(batch) :]))
    first = xp.argmax(xp.astype(xp.reshape(mask, (-1,)), xp.int32), axis=0)
    wide = xp.reshape(mask, (*batch, *(1,) * event_dim))
    return xp.where(wide, value, xp.take(rows, xp.reshape(first, (1,)), axis=0))


def over_events(mask: Any, event_dim: int) -> Any:
    """Return a mask with axes for events."""
    return namespace(mask).reshape(mask, (*mask.shape, *(1,) * event_dim))


def warn_unobserved(sites: Mapping[str, Any]) -> None:
    """Warn that a model observes nothing."""
    latent = ", ".join(f"'{name}'" for name, site in sites.items() if site["type"] == "sample")
    warn_user(
        f"nothing is observed: the model has no observations, so that fit learns its prior "
        f"(latent: {latent}); pass y, the argument that the model gives to obs=",
        UserWarning,
    )
