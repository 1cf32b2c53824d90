"""Give values that are asked for the covariances that a sweep backwards finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

from moment_calculus.numerics.arrays import Array, diagonal, positive_part
from moment_calculus.operations.elementwise.factors import joint_parameter, positive_factors
from moment_calculus.operations.elementwise.joint import joint_value
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.normalised.softmax import FunctionOfLogits
from moment_calculus.operations.shapes.coordinates import image_of
from moment_calculus.operations.shapes.reshaping import Expanded, broadcast
from moment_calculus.values import Deferred, Gaussian, Spread
from moment_calculus.values.ancestry import branches_of
from moment_calculus.values.backward import asked
from moment_calculus.values.elementwise import Affine, affine
from moment_calculus.values.spread import broadcast_shape, from_features_last, overlap
from moment_calculus.values.step import Entries, OfOneSource


class _Group:
    """Dependent values of one shape, whose covariance in each element is computed once."""

    def __init__(self, values: Sequence[Gaussian]) -> None:
        self.values = values

    @cached_property
    def joint(self) -> Array:
        """The covariance of the values in each element, [*shape, K, K]."""
        return asked.joint(self.values)

    def variance(self, index: int) -> Array:
        """Return the variance of one value."""
        if len(self.values) == 1:
            return asked.variance(self.values[0])
        return positive_part(self.joint[..., index, index])


class _AskedSpread(Spread):
    """Variance and covariance of a value, of which a sweep computes what is needed."""

    __slots__ = ("_axis", "_compute", "_known")

    def __init__(self, value: Gaussian, compute: Callable[[], Array]) -> None:
        self._known, self._compute, self._axis = None, compute, value.axis
        super().__init__(None, None if value.axis is None else lambda: asked.covariance(value))

    @property
    def variance(self) -> Array:
        """The variance of every component."""
        if self._known is None:
            known = self.covariance if not self.plain and not self.is_pending else None
            self._known = (
                self._compute()
                if known is None
                else from_features_last(positive_part(diagonal(known)), self._axis)
            )
        return self._known

    @variance.setter
    def variance(self, variance: Array | None) -> None:
        self._known = variance


@dataclass(frozen=True, eq=False)
class _Settled(OfOneSource):
    """Step of a value with the covariances that a sweep found."""

    group: _Group
    index: int
    identity = True

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        return cotangent

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        return axis

    def entries(self, value: Gaussian) -> Entries | None:
        return self.source.step.entries(self.source)

    def elementwise_covariance_with(
        self, value: Gaussian, other: Gaussian, query: Any
    ) -> Array | None:
        """Return the covariance with another value of the group, or an affine image of one."""
        gain: Any = 1.0
        while (line := other.step.affine) is not None:
            other, gain = line[0], gain * line[1]
        step = other.step
        if not isinstance(step, _Settled) or step.group is not self.group:
            return None
        return gain * self.group.joint[..., self.index, step.index]


def settled(value: Gaussian) -> Gaussian:
    """Return a value with the covariances that a sweep finds when they are needed."""
    return _settle_group([value])[0]


def asked_value(value: Any) -> Any:
    """Return what is asked for as a value with the covariances that a sweep finds."""
    if not hasattr(value, "gaussian"):
        return value
    gaussian = value.gaussian()
    asks = gaussian.propagation.may_sweep and needs_sweep(gaussian, elements_apart=False)
    return settled(gaussian) if asks else gaussian


def is_pulled_back(value: Gaussian) -> bool:
    """Return whether a sweep backwards finds what is asked of a value."""
    if isinstance(value.step, _Settled):
        return not asked.is_exact(value.step.source)
    return value.propagation.is_backward and not asked.is_exact(value)


def _settle_group(values: Sequence[Gaussian]) -> list[Gaussian]:
    group = _Group(values)
    return [_member(group, index) for index in range(len(values))]


def _member(group: _Group, index: int) -> Gaussian:
    value = group.values[index]
    return Gaussian(
        value.mean,
        _AskedSpread(value, lambda: group.variance(index)),
        _Settled(value, group, index),
        axis=value.axis,
        ties=value.ties,
        propagation=replace(value.propagation, covariance="full"),
    )


def needs_sweep(value: Gaussian, elements_apart: bool) -> bool:
    """Return whether the forward sweep does not know what is asked of a value.

    ``elements_apart`` says that nothing is asked between its elements.
    """
    if branches_of(value) is not None or image_of(value) is not None:
        return False  # such a value knows more than its covariance
    if not asked.is_exact(value):
        return True
    known = value.axis is None or value.has_covariance or value.independent
    return not (known or elements_apart or value.propagation.has_full_covariance)


def settle_parameters(parameters: Sequence[Any], batch_rank: int) -> dict[int, Any]:
    """Return random parameters with the covariances of a sweep, by the ``id`` of the old ones.

    Each element of the batch of a distribution, which has ``batch_rank`` axes, is asked for
    the covariance of all parameters, and of the trailing axes of vectors. Parameters that
    need no sweep are left out; in backward mode those that depend on each other need one.
    """
    if not any(map(_may_need_sweep, parameters)):
        return {}
    cores = {core.serial: core for part in parameters for core in _cores(part)}
    ranks = {core.serial: len(part.shape) for part in parameters for core in _cores(part)}

    def asks(group: Sequence[Gaussian]) -> bool:
        above = [ranks[core.serial] - batch_rank for core in group]
        if len(group) > 1 and max(above) <= 0 and group[0].propagation.is_backward:
            return True
        pairs = zip(group, above, strict=True)
        return any(more <= 1 and needs_sweep(core, more <= 0) for core, more in pairs)

    settled_cores: dict[int, Gaussian] = {}
    for group in filter(asks, _dependent_groups(cores.values())):
        shape = broadcast_shape(*(value.shape for value in group))
        axis = next((value.axis for value in group if value.axis is not None), None)
        wide = [broadcast(value, shape, axis) for value in group]
        settled_cores |= dict(
            zip((value.serial for value in group), _settle_group(wide), strict=True)
        )
    if not settled_cores:
        return {}
    changed = ((part, _with_cores(part, settled_cores)) for part in parameters)
    return {id(old): new for old, new in changed if new is not old}


def _may_need_sweep(parameter: Any) -> bool:
    """Return whether the sweep forward may have dropped a covariance on the way to a parameter."""
    base = getattr(parameter, "base", None) or getattr(parameter, "source", parameter)
    if not isinstance(base, Gaussian) or not base.propagation.has_full_covariance:
        return True
    is_sum = isinstance(parameter, Deferred) and parameter.fallback is not None
    return is_sum or not asked.is_exact(base)


def _dependent_groups(values: Iterable[Gaussian]) -> list[list[Gaussian]]:
    """Return values in groups, of which none depends on another."""
    groups: list[list[Gaussian]] = []
    for value in values:
        joined = [group for group in groups if any(overlap(value, other) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([part for group in joined for part in group] + [value])
    return groups


def _cores(parameter: Any) -> list[Gaussian]:
    """Return the Gaussians behind a parameter, without shifts, scales and repetitions."""
    if isinstance(parameter, FunctionOfLogits):
        return [parameter.source]
    if not isinstance(parameter, Gaussian | Deferred):
        return []
    if (factors := positive_factors(parameter)) is not None and len(factors) > 1:
        return [core for factor in factors for core in _cores(factor)]
    if (joint := joint_parameter(parameter)) is not None:
        return [core for leaf in joint.leaves() for core in _cores(leaf)]
    return [_core(_base(parameter))]


def _base(parameter: Gaussian | Deferred) -> Gaussian:
    if isinstance(parameter, Gaussian):
        return parameter
    is_sum = parameter.fallback is not None and not parameter.is_recognised
    return parameter.gaussian() if is_sum else parameter.base


def _core(value: Gaussian) -> Gaussian:
    while type(value.step) is Affine or isinstance(value.step, Expanded):
        value = value.step.inputs[0]
    return value


def _with_cores(parameter: Any, settled_cores: dict[int, Gaussian]) -> Any:
    """Return a parameter computed from the new values."""
    if isinstance(parameter, FunctionOfLogits):
        return _settle_logits(parameter, settled_cores)
    if not isinstance(parameter, Gaussian | Deferred):
        return parameter
    if (factors := positive_factors(parameter)) is not None and len(factors) > 1:
        changed = [_with_cores(factor, settled_cores) for factor in factors]
        pairs = zip(changed, factors, strict=True)
        return parameter if all(new is old for new, old in pairs) else reduce(multiply, changed)
    if (joint := joint_parameter(parameter)) is not None:
        return joint_value(joint.rebuilt(lambda leaf: _with_cores(leaf, settled_cores)))
    base = _base(parameter)
    new = _recompute(base, settled_cores)
    if new is base:
        return parameter
    if isinstance(parameter, Deferred) and base is parameter.base:
        return Deferred(new, parameter.function, closed_form=parameter.closed_form)
    return new


def _settle_logits(
    parameter: FunctionOfLogits, settled_cores: dict[int, Gaussian]
) -> FunctionOfLogits:
    new = settled_cores.get(parameter.source.serial)
    return parameter if new is None else type(parameter)(new)


def _recompute(value: Gaussian, settled_cores: dict[int, Gaussian]) -> Gaussian:
    """Return a value, computed again from the new one that its core became."""
    line = [value]
    while type(line[-1].step) is Affine or isinstance(line[-1].step, Expanded):
        line.append(line[-1].step.inputs[0])
    result = settled_cores.get(line[-1].serial)
    if result is None:
        return value
    for old in reversed(line[:-1]):
        step = old.step
        if isinstance(step, Affine):
            result = affine(result, step.scale, step.shift)
        else:
            result = broadcast(result, broadcast_shape(result.shape, old.shape))
    return result
