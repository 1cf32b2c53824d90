"""A step: how a value was made, as far as its dependence on other values goes.

Every operation gives its result a step of its own, which stands beside it. What computes with
dependent values (covariances, lags, vectors, functions of one Gaussian) asks these questions and
knows no step by name. A step that says nothing claims nothing: its components may be tied to each
other, and its covariance with other values is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.values.entries import Entries


class Step:
    """How a value was made: one subclass for each kind of operation, beside it.

    A step never holds the value that it made, so that no cycle outlives its use. A dataclass whose
    ``inputs`` are an argument declares them with ``field()``, without the default of this class.

    Attributes:
        inputs: the values that it was made from.
        identity: whether its components are those of its inputs, or their sums.
        in_place: whether component i depends on component i of the inputs alone, all of which are
            functions of one value in this way.
        mixes: whether the features of the inputs entered as independent (diagonal mode).
        affine: its only input x, a scale and a shift, certain arrays or numbers, if it is
            scale · x + shift component by component.
        curved: whether it is a function or a product, known by its moments alone.
        function: the Gaussian and the function of which it is the image, as a pair.
        factors: the two values of which it is the product.
        quadratic: values x and y and a weight, an array of the value's shape or None for one, if
            its part of second order is weight · ((x − E x)(y − E y) − Cov(x, y)).
        weight: whether it is a latent matrix as a whole, not a batch of latent vectors; a product
            with certain columns then has its rows as features.
        data: whether it is data with noise of their own: an input of maps, never a weight.
        linked: whether it is linear in latent chains and nothing else ties its components, so that
            sums and maps take their covariance in diagonal mode too.
        elementwise: whether every component is made of single components of the inputs, so that
            :meth:`branches` are known.
    """

    inputs: tuple[Any, ...] = ()
    identity: bool = False
    in_place: bool = False
    mixes: bool = False
    affine: tuple[Any, Any, Any] | None = None
    curved: bool = False
    function: tuple[Any, Any] | None = None
    factors: tuple[Any, Any] | None = None
    quadratic: tuple[Any, Any, Array | None] | None = None
    weight: bool = False
    data: bool = False
    linked: bool = False
    elementwise: bool = False

    def follows(self, place: int) -> bool:
        """Whether :meth:`through` knows the covariance that comes in by an input.

        Args:
            place: of the input.
        """
        return self.identity

    def through(self, place: int, cross: Array) -> Array | None:
        """Cov(input, ·) → Cov(value, ·) in the layout ``batch + [d, e]``; None if unknown.

        Args:
            place: of the input.
            cross: its covariance with another value.
        """
        return cross if self.identity else None

    def beyond(self, value: Any, other: Any, query: Any) -> Array | float | None:
        """What the covariance has beside what comes in by the inputs; None if unknown.

        Args:
            value: what this step made.
            other: another value.
            query: answers for further pairs.
        """
        return 0.0

    def meet(self, value: Any, other: Any, query: Any) -> Array | None:
        """Cov(value, other) where more is known than the inputs tell; None if unknown.

        Args:
            value: what this step made.
            other: an older value.
            query: answers for further pairs.

        Returns:
            NotImplemented: to go by the inputs.
        """
        return NotImplemented

    def each(self, value: Any, other: Any, query: Any) -> Array | float | None:
        """The same component by component, of values of one shape and feature axis.

        Args:
            value: what this step made.
            other: another value, older or newer.
            query: answers for further pairs.

        Returns:
            None: to take it from the whole covariance.
        """
        return None

    def between_features(self, value: Any, rows: Any, columns: Any) -> Array | None:
        """Covariance of some features with others, where that is less work than all of it.

        Args:
            value: what this step made, with its features on the trailing axis.
            rows: a slice.
            columns: another one, without a feature in common.

        Returns:
            ``batch + [r, c]``, or what broadcasts to it; None: to take it from all of it.
        """
        return None

    def image_of_vector(self, value: Any) -> tuple[Any, Array] | None:
        """A vector x and a certain matrix M, if the value is M x beside independent noise.

        Args:
            value: what this step made, with its features on the trailing axis.

        Returns:
            x with features [..., d] and M [..., features, d]; None if there are none.
        """
        return None

    def lag(self, value: Any, offset: tuple[int, ...]) -> Array | None:
        """Covariance of every component with the one an offset away; None if unknown.

        Args:
            value: what this step made.
            offset: along each axis.

        Returns:
            NotImplemented: to take it from the covariance of the features, or of the inputs.
        """
        return NotImplemented

    def as_vector(self, value: Any) -> Any:
        """The same value with its trailing axis as feature axis; None if unknown.

        Args:
            value: what this step made, a batch of scalars.
        """
        return None

    def branches(self, value: Any, parts: Any) -> Any:
        """What the value is under either outcome of a random mask; None if it has none.

        Args:
            value: what this step made.
            parts: the branches of the inputs, or None of each, if the step is elementwise.

        Returns:
            :class:`moment_calculus.values.ancestry.Branches`.
        """
        return None

    def under(self, move: Any, like: Any) -> Any:
        """What a move of the value makes, from moved inputs; None if it does not come through.

        Args:
            move: the step of the moved value.
            like: the moved value.
        """
        return None

    def inward(self, value: Any) -> Any:
        """The same value with a move of it before the step of what was moved, see :meth:`under`.

        Args:
            value: what this step made.
        """
        return None

    def entries(self, value: Any) -> Entries | None:
        """Which entries of a latent site its components are; None if they are none.

        Args:
            value: what this step made.
        """
        return None


@dataclass(frozen=True, eq=False)
class Opaque(Step):
    """Made from values in an unknown way.

    Args:
        inputs: these values.
        weight: as of :class:`Step`.
    """

    inputs: tuple[Any, ...] = ()
    weight: bool = False
