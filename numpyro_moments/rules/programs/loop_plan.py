"""Run steps as a JAX loop that carries moments, and track the sites of its results."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.numerics import diagonal_matrix
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import (
    ALL,
    Composite,
    Deferred,
    Gaussian,
    Opaque,
    Propagation,
    Root,
    Spread,
    Support,
    Ties,
    batch_shape,
    features_last,
    is_weight,
    union,
)
from numpyro_moments.rules.table import is_random


class SeenThrough(Exception):
    """Raised if a step uses more of a value than the moments that cross the boundary."""


class Matched(Deferred):
    """Moments that stand for a function of a Gaussian, which is not available."""

    __slots__ = ()

    def __init__(self, gaussian: Gaussian) -> None:
        self._gaussian = gaussian
        self._recognised_function = self._derived_from = self.closed_form = self.fallback = None

    @property
    def base(self) -> Any:  # type: ignore[override]
        """Raise SeenThrough: the Gaussian is not known."""
        raise SeenThrough("base")

    @property
    def function(self) -> Any:
        """Raise SeenThrough: the function is not known."""
        raise SeenThrough("function")

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the value."""
        return self.gaussian().shape

    @property
    def dtype(self) -> Any:
        """Return the dtype of the moments."""
        return self.gaussian().mean.dtype

    @property
    def at_mean(self) -> Any:
        """Return the mean, for its shape and dtype."""
        return self.gaussian().mean

    @property
    def sites(self) -> frozenset[str]:
        """Return the names of the latent sites that the value depends on."""
        return self.gaussian().sites

    @property
    def support(self) -> Support:
        """Return the latent sites that the value depends on, and which elements."""
        return self.gaussian().support

    @property
    def propagation(self) -> Propagation:
        """Return how randomness flows in this program."""
        return self.gaussian().propagation

    def gaussian(self) -> Gaussian:
        """Return the moments."""
        return self._gaussian  # type: ignore[return-value]

    def moved(self, move: Any) -> Matched:
        """Return the moved moments."""
        return Matched(move(self.gaussian()))


@dataclass(frozen=True)
class Form:
    """What stays the same about a carried random value at every step."""

    shape: tuple[int, ...]
    dtype: Any
    axis: int | None  # of the features
    dense: bool  # whether it carries a covariance
    ties: Ties  # which of its elements depend on each other
    weight: bool  # whether it is a whole latent matrix
    matched: bool  # whether it is a function of a Gaussian, of which only the moments are carried
    known_joint: bool  # whether a joint covariance is known that is not propagated
    joint: bool = False  # whether that joint covariance is carried, too

    @classmethod
    def of(cls, value: Any) -> Form:
        """Return the form of a value; raise SeenThrough for functions of logits."""
        if isinstance(value, Composite):
            raise SeenThrough(value.name)
        gaussian = value.gaussian()
        return cls(
            gaussian.shape,
            gaussian.mean.dtype,
            gaussian.axis,
            gaussian.has_covariance,
            gaussian.ties,
            is_weight(gaussian),
            isinstance(value, Deferred),
            not gaussian.has_covariance and not gaussian.independent and gaussian.axis is not None,
        )

    @property
    def joint_shape(self) -> tuple[int, ...]:
        """Return the shape of the covariance matrices over the feature axis."""
        size = 1 if self.axis is None else self.shape[self.axis]
        return (*batch_shape(self.shape, self.axis), size, size)

    def pack(self, value: Any) -> tuple[Any, ...]:
        """Return mean, variance and perhaps covariance of a value of this form."""
        gaussian = value.gaussian()
        arrays = [jnp.broadcast_to(part, self.shape) for part in (gaussian.mean, gaussian.variance)]
        if self.dense or self.joint:
            arrays.append(jnp.broadcast_to(gaussian.joint_covariance(), self.joint_shape))
        return tuple(jnp.asarray(array, self.dtype) for array in arrays)

    def unpack(
        self,
        arrays: Sequence[Any],
        sites: frozenset[str],  # names of the sites that the value depends on
        propagation: Propagation,
        *,
        inputs: tuple[Gaussian, ...] = (),  # values that it was made from, in an unknown way
        joint: Callable[[], Any] | None = None,  # computes a joint covariance not in the arrays
    ) -> Any:
        """Return the value of packed arrays: a root unless inputs are given."""
        mean, variance, *rest = arrays
        covariance = rest[0] if rest else lambda: self._diagonal(variance)
        behind = union(inputs)
        known = self._joint(rest, joint or _missing)
        gaussian = Gaussian(
            mean,
            Spread(variance, covariance if self.dense else known, self.dense),
            Opaque(inputs, self.weight) if inputs else Root(self.weight),
            axis=self.axis,
            support={site: behind.get(site, ALL) for site in sites},
            ties=self.ties,
            propagation=propagation,
        )
        return Matched(gaussian) if self.matched else gaussian

    def _diagonal(self, variance: Any) -> Any:
        return diagonal_matrix(features_last(variance, self.axis))

    def _joint(self, rest: Sequence[Any], missing: Callable[[], Any]) -> Any:
        if self.dense or not self.known_joint:
            return None
        return (lambda: rest[0]) if rest else missing


def _missing() -> Any:
    raise SeenThrough("joint covariance")


@dataclass(frozen=True)
class Plan:
    """Steps of a loop as a JAX loop.

    Inside a step the random values are roots of the graph. A carried one depends on a
    label of its own, which shows on what a result depends.
    """

    loop: Any
    carried: list[Any]  # what the first step gets
    slices: list[Any]  # operands of which every step reads one element
    length: int  # number of steps
    constants: list[tuple[Form | None, Any]]  # their arrays; no form: certain
    forms: tuple[Form | None, ...]  # of each carried value; None: certain
    rows: tuple[Form | None, ...]  # of an element of each slice
    # Sites and labels on which each value depends that a step carries on.
    handed: tuple[frozenset[str], ...] = ()
    # Form of each stacked result, and the sites and labels on which it depends.
    stacks: tuple[tuple[Form | None, frozenset[str]], ...] = ()

    @classmethod
    def of(cls, loop: Any, carried: list[Any], slices: list[Any], length: int) -> Plan:
        """Return the first plan; raise SeenThrough if moments do not suffice."""
        forms = tuple(map(_form, carried))
        rows = tuple(_form(ops.index(part, 0)) if is_random(part) else None for part in slices)
        constants = [_constant(value) for value in loop.constants]
        return cls(loop, carried, slices, length, constants, forms, rows)

    @property
    def stacks_random(self) -> bool:
        """Return whether some stacked result is random."""
        return any(form is not None for form, _ in self.stacks)

    def complete(self) -> Plan | None:
        """Return the plan after an abstract step; None if forms or dependence change."""
        needed: set[int] = set()
        found = self._probed(needed)
        return self._with_joint(needed).complete() if needed else found

    def _with_joint(self, indices: Collection[int]) -> Plan:
        """Return the plan that carries joint covariances of values at ``indices``, too."""
        forms = tuple(
            replace(form, joint=True) if form and index in indices else form
            for index, form in enumerate(self.forms)
        )
        return replace(self, forms=forms)

    def _probed(self, needed: set[int]) -> Plan | None:
        """Evaluate a step abstractly; note missing joint covariances in ``needed``."""
        found: dict[str, Any] = {}

        def missing(index: int, form: Form) -> Any:
            needed.add(index)
            return jnp.zeros(form.joint_shape, form.dtype)

        def probe(carried: Any, sliced: Any) -> None:
            handed, results = self._step(carried, sliced, missing)
            found["forms"] = tuple(map(_form, handed))
            found["handed"] = tuple(map(_sites, handed))
            found["stacks"] = tuple((_form(value), _sites(value)) for value in results)

        first = jax.tree.map(lambda array: array[0], self._sliced())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the real evaluation warns
            jax.eval_shape(probe, self._packed(self.carried), first)
        if not self._keeps_form(found.pop("forms")) or not self._keeps_apart(found["handed"]):
            return None
        return replace(self, **found)

    def _keeps_form(self, forms: tuple[Form | None, ...]) -> bool:
        return all(itertools.starmap(_same, zip(self.forms, forms, strict=True)))

    def _keeps_apart(self, handed: tuple[frozenset[str], ...]) -> bool:
        parts = [_union(map(_sites, self.loop.constants)), *handed]
        return sum(map(len, parts)) == len(_union(parts))

    def _packed(self, values: Sequence[Any]) -> list[Any]:
        avals = self.loop.body.out_avals
        return [
            form.pack(value) if form else jnp.asarray(value, aval.dtype)
            for form, value, aval in zip(self.forms, values, avals, strict=False)
        ]

    def _sliced(self) -> list[Any]:
        return [(part.mean, part.variance) if is_random(part) else part for part in self.slices]

    def _step(
        self, carried: list[Any], sliced: list[Any], missing: Any = None
    ) -> tuple[list[Any], list[Any]]:
        """Evaluate one step on arrays, and return values."""
        constants = [
            form.unpack(arrays, value.sites, value.propagation) if form else arrays
            for (form, arrays), value in zip(self.constants, self.loop.constants, strict=True)
        ]
        values = [
            form.unpack(
                arrays,
                frozenset([_label(index)]),
                self._propagation,
                joint=missing and partial(missing, index, form),
            )
            if form
            else arrays
            for index, (form, arrays) in enumerate(zip(self.forms, carried, strict=True))
        ]
        rows = [
            form.unpack(arrays, whole.sites, whole.propagation) if form else arrays
            for form, arrays, whole in zip(self.rows, sliced, self.slices, strict=True)
        ]
        with self.loop.interpreter.loop_body():
            return self.loop.evaluate(constants, values, rows)

    @property
    def _propagation(self) -> Propagation:
        return self.loop.random[0].propagation

    def _arrays(self) -> tuple[list[Any], list[Any]]:
        """Return the arrays that the last step carries on, and the stacked results."""

        def body(carried: Any, sliced: Any) -> Any:
            handed, results = self._step(carried, sliced)
            rows = [
                form.pack(value) if form else value
                for (form, _), value in zip(self.stacks, results, strict=True)
            ]
            return self._packed(handed), rows

        return jax.lax.scan(
            body,
            self._packed(self.carried),
            self._sliced(),
            length=self.length,
            reverse=self.loop.reverse,
            unroll=min(self.loop.unroll, self.length),
        )

    def run(self) -> tuple[list[Any], list[Any]]:
        """Return what the last step carries on, and the stacked results."""
        carried, stacked = self._arrays()
        reached = self._reached()
        last = [
            self._value(form, arrays, reached[_label(i)], self._joint_of_carried(i))
            for i, (form, arrays) in enumerate(zip(self.forms, carried, strict=True))
        ]
        results = []
        for i, ((form, sites), arrays) in enumerate(zip(self.stacks, stacked, strict=True)):
            long = form and replace(form, shape=(self.length, *form.shape), ties=Ties.ALL)
            sites = _union(reached.get(name, {name}) for name in sites)
            results.append(self._value(long, arrays, sites, self._joint_of_stacked(i)))
        return last, results

    def _value(self, form: Form | None, arrays: Any, sites: frozenset[str], joint: Any) -> Any:
        """Return a result; how it depends on other values of its sites is not known."""
        if form is None:
            return arrays
        roots = [*self.loop.constants, *self.carried, *self.slices]
        inputs = [root.gaussian() for root in roots if _sites(root) & sites]
        return form.unpack(arrays, sites, self._propagation, inputs=tuple(inputs), joint=joint)

    def _joint_of_carried(self, index: int) -> Any:
        """Return a function that computes a joint covariance by another loop."""
        return lambda: self._with_joint([index])._arrays()[0][index][2]

    def _joint_of_stacked(self, index: int) -> Any:
        stacks = [
            (form and replace(form, joint=form.joint or i == index), sites)
            for i, (form, sites) in enumerate(self.stacks)
        ]
        return lambda: replace(self, stacks=tuple(stacks))._arrays()[1][index][2]

    def _reached(self) -> dict[str, frozenset[str]]:
        """Return for each label the latent sites behind it after any number of steps."""
        reached = {_label(i): _sites(value) for i, value in enumerate(self.carried)}
        for _ in self.handed:
            for i, names in enumerate(self.handed):
                behind = _union(reached.get(name, {name}) for name in names)
                reached[_label(i)] |= behind
        return reached


def _same(old: Form | None, new: Form | None) -> bool:
    if old is None or new is None:
        return old is new
    return replace(new, joint=old.joint) == old


def _label(index: int) -> str:
    return f"carry {index} of the loop"


def _union(parts: Any) -> frozenset[str]:
    return frozenset().union(*parts)


def _form(value: Any) -> Form | None:
    return Form.of(value) if is_random(value) else None


def _sites(value: Any) -> frozenset[str]:
    return value.sites if is_random(value) else frozenset()


def _constant(value: Any) -> tuple[Form | None, Any]:
    """Return the form and arrays of a constant, which is a root inside a step."""
    if not is_random(value):
        return None, value
    form = Form.of(value)
    form = replace(form, joint=form.known_joint)
    return form, form.pack(value)
