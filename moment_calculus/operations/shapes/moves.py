"""Elements put elsewhere: moments move, covariances follow while their axis survives.

On a :class:`Deferred` a move moves its base, so that the function stays recognisable (the scale of
a likelihood, say).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.refusals.errors import CovarianceDroppedWarning
from moment_calculus.refusals.notices import warn_user
from moment_calculus.values import Deferred, Gaussian, Spread, Step, Ties
from moment_calculus.values.entries import Entries, by_older, entries_of
from moment_calculus.values.lags import lag_covariance


@dataclass(frozen=True, eq=False)
class Moved(Step):
    """The elements of a value, put elsewhere.

    Args:
        source: the value.
        kept: which entries of a latent site the result is made of.
        rows: the map of Cov(source, ·) to Cov(result, ·); None if unknown.
        identity: whether that map is the identity.
        in_place: as of :class:`Step`.
    """

    source: Gaussian
    kept: Entries | None = None
    rows: Callable[[Array], Array | None] | None = None
    identity: bool = False
    in_place: bool = False

    @property
    def inputs(self) -> tuple[Gaussian, ...]:  # type: ignore[override]
        """The value alone."""
        return (self.source,)

    def follows(self, place: int) -> bool:
        """Where there is a map."""
        return self.identity or self.rows is not None

    def through(self, place: int, cross: Array) -> Array | None:
        """By the map."""
        return cross if self.rows is None else self.rows(cross)

    def entries(self, value: Gaussian) -> Entries | None:
        """Those of the source, moved."""
        return self.kept

    def meet(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """What is made of entries of a site is asked by the inputs of the other value first."""
        return by_older(value, other, query)


@dataclass(frozen=True, eq=False)
class Permuted(Moved):
    """Axes in another order.

    Args:
        order: the old axis at each new place.
    """

    order: tuple[int, ...] = ()

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """That of the source, permuted."""
        old = [0] * len(self.order)
        for place, axis in enumerate(self.order):
            old[axis] = offset[place]
        known = lag_covariance(self.source, old)
        return None if known is None else namespace(known).permute_dims(known, self.order)


def relocated(value: Gaussian, move: Callable[[Array], Array]) -> Entries | None:
    """Which entries of a latent site a value is made of, after a move.

    Args:
        value: the value.
        move: puts the elements of an array elsewhere; it computes nothing from them.
    """
    entries = entries_of(value)
    return None if entries is None else entries.moved(move)


def moved(
    value: Gaussian,
    move: Callable[[Array], Array],
    axis: int | None,
    step: Step | None = None,
    **moments: Any,
) -> Gaussian:
    """The value with its arrays moved.

    Args:
        value: the value.
        move: moves an array of its shape.
        axis: feature axis of the result.
        step: what is known of the dependence; by default on which entries of a site it depends.
        **moments: ``covariance`` and ``joint`` as of :class:`Spread`, ``ties`` and ``support`` as
            of :class:`Gaussian`; all components may be tied unless told otherwise.
    """
    covariance, joint = moments.pop("covariance", None), moments.pop("joint", None)
    return Gaussian(
        move(value.mean),
        Spread(move(value.variance), covariance, joint),
        Moved(value, relocated(value, move)) if step is None else step,
        axis=axis,
        propagation=value.propagation,
        **{"ties": Ties.ALL, **moments},
    )


def permute(value: Any, order: Sequence[int]) -> Any:
    """Reorder the axes of a value or array; the feature axis moves along.

    Args:
        value: value or array of rank n.
        order: the old axis at each new place, a permutation of 0 … n − 1.
    """
    order = tuple(order)
    if isinstance(value, Deferred):
        return value.moved(lambda v: permute(v, order))
    if not isinstance(value, Gaussian):
        return namespace(value).permute_dims(value, order)
    rank = len(order)
    if order == tuple(range(rank)):
        return value
    xp = namespace(value.mean)
    place = None if value.axis is None else rank + value.axis
    axis = None if place is None else order.index(place) - rank
    batch = [o - (place is not None and o > place) for o in order if o != place]
    move = lambda a: xp.permute_dims(a, order)  # noqa: E731
    step = Permuted(value, relocated(value, move), identity=batch == sorted(batch), order=order)
    return with_batch(
        value, move, axis, step, lambda c: xp.permute_dims(c, (*batch, len(batch), len(batch) + 1))
    )


def with_batch(
    value: Gaussian,
    move: Callable[[Array], Array],
    axis: int | None,
    step: Step,
    move_batch: Callable[[Array], Array],
) -> Gaussian:
    """Move the batch of a value whose features stay as they are.

    Args:
        value: the value.
        move: moves an array of its shape.
        axis: feature axis of the result.
        step: what is known of the dependence.
        move_batch: moves an array ``batch + [d, d]``.
    """
    joint = None
    if value.axis is not None:
        joint = lambda: move_batch(value.joint_covariance())  # noqa: E731
    covariance = joint if value.has_covariance and axis is not None else None
    return moved(value, move, axis, step, covariance=covariance, joint=joint, ties=value.ties)


def swap_last(value: Any) -> Any:
    """Transpose the two trailing axes of a value or array; the feature axis moves along."""
    rank = len(value.shape)
    return permute(value, (*range(rank - 2), rank - 1, rank - 2))


def move_axis(value: Any, source: int, target: int) -> Any:
    """Move one axis of a value or array to another place; the other axes keep their order.

    Args:
        value: value or array.
        source: non-negative axis.
        target: its non-negative place in the result.
    """
    order = [axis for axis in range(len(value.shape)) if axis != source]
    order.insert(target, source)
    return permute(value, order)


def converted(value: Any, move: Callable[[Array], Array]) -> Any:
    """The same value in another precision or on another device.

    Args:
        value: value or array.
        move: converts an array.
    """
    if isinstance(value, Deferred):
        return value.moved(lambda v: converted(v, move))
    if not isinstance(value, Gaussian):
        return move(value)
    joint = lambda: move(value.joint_covariance())  # noqa: E731
    covariance = joint if value.has_covariance else None
    step = Moved(value, entries_of(value), rows=move)
    return moved(value, move, value.axis, step, covariance=covariance, joint=joint, ties=value.ties)


def may_lose_dependence(value: Gaussian) -> bool:
    """Whether a change of the feature axis loses a covariance that full mode knows or carries."""
    return value.propagation.full and not value.independent


def warn_dropped(value: Gaussian, what: str) -> None:
    """Tell the user once per line that only the diagonal of a covariance is kept."""
    warn_user(
        f"{what} mixes the feature axis of a covariance that depends on latent site(s) "
        f"{', '.join(sorted(value.sites))}: only the variances are kept, and what follows takes "
        "the components as independent; keep the outputs of a layer on an axis of their own (a "
        "mean over positions instead of a reshape), or draw a site by naming it in sample_sites=",
        CovarianceDroppedWarning,
    )
