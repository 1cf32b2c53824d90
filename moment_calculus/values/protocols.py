"""Questions that some steps answer beside those of every step: each class is for one engine.

An engine asks ``isinstance(step, KnowsLags)``, and knows no other class by name. ``value`` is
always the value of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.values.step import Added, Step


class KnowsLags(Step):
    """Step that knows covariances of components with others of the same value, see :mod:`.lags`."""

    def lag(self, value: Any, offset: tuple[int, ...]) -> Array | None:
        """Covariance of every component with the one at an offset from it; None if unknown.

        NotImplemented to take it from the covariance of the features, or from :meth:`pairs`.
        """
        return NotImplemented

    def pairs(self, value: Any, pairs: Any) -> Array | None:
        """Covariances of pairs of components, [kinds, *counts]; None if unknown.

        ``pairs`` are :class:`.Pairs`, none of a component with itself, or :class:`.Along` an
        axis, with the variances. NotImplemented to take them from :meth:`lag`, or else from inputs.
        """
        return NotImplemented

    def own_lag(self, value: Any, offset: tuple[int, ...], absorbed: bool) -> Array | None:
        """As :meth:`lag`, of what the step adds; None if it is not known, and taken as zero.

        ``absorbed`` is whether that is :meth:`.MapStep.absorbed`, in place of :meth:`.Step.own`.
        """
        return None

    def own_along(self, value: Any, along: Any) -> Array | None:
        """As :meth:`own_lag`, at all pairs of positions along an axis; None to ask for each lag.

        [positions, *shape of the value], or what broadcasts to it.
        """
        return None


class Switched(Step):
    """Step of a value that may be switched by a random mask, see :mod:`.ancestry`."""

    def branches(self, value: Any, input_branches: Any) -> Any:
        """The :class:`.Branches` of the value, given those of each input, or None for none."""
        raise NotImplementedError


class Rewritable(Step):
    """Step whose value is known to be equal to one that is computed in another order."""

    # whether a component of the input may be several components of the value
    repeats: bool = False

    def as_vector(self, value: Any) -> Any:
        """A batch of scalars with its trailing axis as the feature axis; None if unknown."""
        return None

    def function_first(self, value: Any, apply: Callable[[Any], Any]) -> Any:
        """The function ``apply`` of each element by that of inputs; None unless it knows more."""
        return None

    def pull_move_through(self, move: Any, like: Any) -> Any:
        """The moved value ``like``, made by the step ``move``, from moved inputs; else None."""
        return None

    def move_inputs_first(self, value: Any) -> Any:
        """The same value, which is a move, with the inputs of the moved step moved instead."""
        return None


class DataStep(Step):
    """Step of data with noise of their own: input of a map, never its weight."""


class Symmetric(Step):
    """Step of a symmetric matrix."""


class MapStep(Step):
    """Step of a linear map of features, by certain or random weights."""

    # x and the expected M [outputs, inputs], if the value is M x plus noise
    expected_map: tuple[Any, Any] | None = None

    def outer_inputs(self, value: Any, input_index: int) -> Array | None:
        """The mean of x [..., in], if the value is M x for the input M [out, in]; else None."""
        return None

    def pull_rows(self, value: Any, input_index: int, cotangent: Array, axis: int) -> Array | None:
        """The summands of :meth:`.Step.pull`, one for each element of an axis that is mixed.

        [n, elements along the axis, *shape of the input], or wider; None if that is unknown.
        """
        return None

    def absorbable(self, value: Any) -> tuple[int, ...]:
        """Places of inputs, as weights and biases, which add independent noise if used once."""
        return ()

    def absorbed(self, value: Any) -> Added:
        """What absorbable inputs and the step add together to the covariance of the value."""
        raise NotImplementedError

    def positive_sum(self, value: Any) -> Any:
        """The function of several Gaussians that a sum of few positive functions is; else None."""
        return None
