"""The inverse Hessian of a loss at its optimum, for corrected moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from moment_inference.errors import FlatDirection, Indefinite, NotAnOptimum, Undetermined
from moment_inference.host import Linearised, ParameterArray
from moment_inference.optimisation.rounds import DeterministicLoss
from moment_inference.response.natural_inverse import NaturalInverse
from moment_inference.response.problem import Latent, Problem
from moment_inference.response.solvers import Arrow, ConjugateGradients, Dense, Partition


@dataclass(frozen=True)
class Selection:
    """A functional whose elements are parameters themselves."""

    value: np.ndarray  # [d]
    indices: np.ndarray  # indices of the elements among the parameters, [d]
    size: int  # number of all parameters

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times G, [k, parameters]."""
        result = np.zeros([len(rows), self.size])
        result[:, self.indices] = rows
        return result

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, parameters] times the transpose of G, [k, d]."""
        return rows[:, self.indices]


def as_selection(functional: Linearised, size: int) -> Linearised:
    """Return a functional as a selection if its elements are parameters."""
    count = len(functional.value)
    # If G selects parameters, the numbers 1 to d appear at the indices of the parameters.
    (numbered,) = functional.vjp(np.arange(1.0, count + 1)[None])
    (indices,) = np.nonzero(numbered)
    order = np.rint(numbered[indices]).astype(int) - 1
    if not np.array_equal(np.sort(order), np.arange(count)):
        return functional
    selection = Selection(functional.value, indices[np.argsort(order)], size)
    # G could select more than that: compare with a random direction.
    probe = np.random.default_rng(0).normal(size=[1, size])
    expected = functional.jvp(probe)
    return (
        selection if np.allclose(expected, selection.jvp(probe), rtol=1e-6, atol=0) else functional
    )


class ParameterLayout:
    """Site, coordinate and element of each plate that every parameter belongs to."""

    def __init__(
        self, latents: Sequence[Latent], leaves: Sequence[ParameterArray], locations: Linearised
    ) -> None:
        self.latents = {latent.name: latent for latent in latents}
        ends = np.cumsum([0, *(latent.loc.size for latent in latents)])
        self.slices = {latent.name: slice(*ends[at : at + 2]) for at, latent in enumerate(latents)}
        self.leaves = list(leaves)
        self.coordinates = self._coordinates(locations)

    def _coordinates(self, locations: Linearised) -> np.ndarray:
        """Return the coordinate whose location or scale each parameter is, or -1."""
        starts = np.cumsum([0, *(leaf.size for leaf in self.leaves)])
        coordinates = np.full(starts[-1], -1)
        if isinstance(locations, Selection):
            coordinates[locations.indices] = np.arange(len(locations.indices))
        slices = {leaf.name: slice(*starts[at : at + 2]) for at, leaf in enumerate(self.leaves)}
        for leaf in self.leaves:
            if leaf.location is not None:
                coordinates[slices[leaf.name]] = coordinates[slices[leaf.location]]
        return coordinates

    def share_by_site(self, amounts: np.ndarray) -> list[tuple[str, float]]:
        """Return each site's share of amounts [n] of the parameters, largest first."""
        start, by_site = 0, dict.fromkeys(self.latents, 0.0)
        inside = self.coordinates >= 0
        for name, part in self.slices.items():
            mine = (self.coordinates >= part.start) & (self.coordinates < part.stop)
            by_site[name] += float(amounts[mine].sum())
        for leaf in self.leaves:
            here = slice(start, start + leaf.size)
            start += leaf.size
            if rest := float(amounts[here][~inside[here]].sum()):
                by_site[leaf.name] = rest
        total = sum(by_site.values()) or 1.0
        ordered = sorted(by_site.items(), key=lambda item: -item[1])
        return [(name, amount / total) for name, amount in ordered if amount > 0]

    def partitions(self) -> list[Partition]:
        """Return partitions by a plate of local latents, by number of products."""
        # Axes of sites without a plate are tried as well: some models are written without
        # plates.
        axes = dict.fromkeys(axis for latent in self.latents.values() for axis in latent.axes)
        candidates = [Partition.by(self._elements(axis)) for axis in axes]
        return sorted((part for part in candidates if part), key=lambda part: part.products)

    def _elements(self, axis: str | int) -> np.ndarray:
        """Return which element along an axis each parameter belongs to; -1 for none."""
        parts = [
            np.broadcast_to(_index_along(latent, axis), latent.loc.shape).ravel()
            for latent in self.latents.values()
        ]
        of_coordinates = np.concatenate([*parts, [-1]])  # the last is for index -1, no coordinate
        return of_coordinates[self.coordinates]


def _index_along(latent: Latent, axis: str | int) -> np.ndarray:
    if axis not in latent.axes:
        return np.array(-1)
    position = latent.axes[axis]
    shape = [1] * latent.loc.ndim
    shape[position] = latent.loc.shape[position]
    return np.arange(shape[position]).reshape(shape)


DENSE = 3000  # most parameters for which the dense Hessian is computed
WORTH = 4  # factor by which an arrow must take fewer products than a dense matrix
DOUBLE = 1e-12  # largest rounding unit of a loss in double precision
TOLERANCE = 1e-3  # nats that one more step of Newton's method may gain

REMEDY = 'train it further by fit(..., method="newton"), in double precision by float64=True'


class InverseHessian(Protocol):
    """The inverse Hessian H⁻¹ at the optimum.

    Args:
        is_iterative: whether each row takes iterations of its own.
        has_flat_directions: whether H was found flat along directions, perhaps by rounding.
    """

    is_iterative: bool
    has_flat_directions: bool

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Rows [k, n] times H⁻¹, [k, n]."""

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """The same, without the parts of rows along directions in which H is flat."""

    def diagonal(self) -> np.ndarray | None:
        """The diagonal of H⁻¹, [n]; None if each element takes a solution of its own."""

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draws from N(0, H⁻¹), [count, n]."""


def inverse_hessian(
    objective: DeterministicLoss, parameters: np.ndarray, layout: ParameterLayout, tolerance: float
) -> tuple[InverseHessian, float]:
    """Return H⁻¹ at parameters [n] and the Newton decrement."""
    loss, slope = objective.value_and_slope(parameters)
    if not (np.isfinite(loss) and np.isfinite(slope).all()):
        raise NotAnOptimum(
            f"the loss is {loss:.6g}, or its slope is not finite: look for NaN among data and "
            "parameters, and for observations outside their support"
        )
    try:
        inverse = _inverse(objective, parameters, layout)
        (step,) = inverse.solve_ignoring_flat(slope[None])
    except Indefinite as indefinite:
        raise _saddle(indefinite, objective, parameters, layout) from None
    return inverse, _checked_decrement(slope, step, layout, tolerance)


def _inverse(
    objective: DeterministicLoss, parameters: np.ndarray, layout: ParameterLayout
) -> InverseHessian:
    if objective.gaussian is not None:
        return NaturalInverse(objective, parameters)
    product = partial(objective.hessian_product, parameters)
    for partition in layout.partitions():
        if partition.products * WORTH <= min(parameters.size, WORTH * DENSE):
            arrow = Arrow.of(product, partition, objective.precision)
            if arrow is not None:
                return arrow
    if parameters.size <= DENSE:
        return Dense(objective.hessian(parameters), objective.precision)
    inverse = ConjugateGradients(product, objective.units(parameters), objective.precision)
    # Solving for a random row meets directions of negative curvature, if there are any.
    inverse.solve_ignoring_flat(np.random.default_rng(0).normal(size=[1, parameters.size]))
    return inverse


def _checked_decrement(
    slope: np.ndarray, step: np.ndarray, layout: ParameterLayout, tolerance: float
) -> float:
    decrement = float(slope @ step) / 2
    if decrement <= tolerance:
        return decrement
    sites = _sites(layout, np.maximum(slope * step, 0))
    raise NotAnOptimum(
        f"the parameters are no optimum: the Newton decrement is {decrement:.2g} nats, above "
        f"{tolerance:g}, most of it at {sites}; linear response is about an optimum: {REMEDY}"
    )


def _saddle(
    indefinite: Indefinite,
    objective: DeterministicLoss,
    parameters: np.ndarray,
    layout: ParameterLayout,
) -> NotAnOptimum:
    units = objective.units(parameters)
    if parameters.size > DENSE:
        indefinite = _lowest(objective, parameters, units) or indefinite
    direction = indefinite.direction / np.where(units > 0, units, 1)
    curvature = (
        indefinite.direction
        @ objective.hessian_product(parameters, indefinite.direction)
        / (direction @ direction)
    )
    sites = _sites(layout, direction**2)
    return NotAnOptimum(
        "the parameters are no optimum: the loss curves downwards along a direction of "
        f"{sites} (eigenvalue {curvature:.2g}, in units of the guide's scales); linear response "
        f"is about an optimum: {REMEDY}"
    )


def _lowest(
    objective: DeterministicLoss, parameters: np.ndarray, units: np.ndarray
) -> Indefinite | None:
    """Return the lowest direction of a large Hessian if it curves downwards."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    product = lambda v: units * objective.hessian_product(parameters, units * np.ravel(v))  # noqa: E731
    operator = LinearOperator((parameters.size, parameters.size), product, dtype=np.float64)
    start = np.random.default_rng(0).normal(size=parameters.size)
    try:
        values, directions = eigsh(operator, k=1, which="SA", tol=1e-2, v0=start, maxiter=300)
    except ArpackError:
        return None
    return Indefinite(values[0], units * directions[:, 0]) if values[0] < 0 else None


def _sites(layout: ParameterLayout, amounts: np.ndarray) -> str:
    """Return the names of the sites with the largest shares, for a message."""
    shares = [(name, share) for name, share in layout.share_by_site(amounts)[:3] if share >= 0.05]
    named = ", ".join(f"'{name}' ({share:.0%})" for name, share in shares)
    return f"site{'s' * (len(shares) > 1)} {named}"


ENTRIES = 2**23  # most numbers that are held at once beside the Hessian
MOST = 2**27  # most numbers that are returned: a gibibyte
REMEDY_FEWER = "ask for those of a function of some elements, lambda sites: ..."
SOLUTIONS = 3000  # most solutions by conjugate gradients for which a user would wait


class InverseCurvature:
    """H⁻¹ of a problem at its optimum; G is the Jacobian of a functional."""

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self.size = problem.program.parameters.size
        self.locations = as_selection(problem.locations, self.size)
        self.layout = ParameterLayout(problem.latents, problem.program.leaves, self.locations)
        if not self.layout.latents:
            raise ValueError("the model has no latent site: there is no posterior to correct")
        self.inverse, self.decrement = self._inverse(problem, tolerance)

    def _inverse(self, problem: Problem, tolerance: float) -> tuple[InverseHessian, float]:
        """Return H⁻¹ and the Newton decrement, in double precision if H looks flat in single."""
        rest = problem.program.parameters, self.layout, tolerance
        inverse, decrement = inverse_hessian(problem.program.objective, *rest)
        if not inverse.has_flat_directions or problem.program.objective.precision <= DOUBLE:
            return inverse, decrement
        try:
            objective = problem.program.in_double().objective
        except (RuntimeError, TypeError, ValueError):  # the model has arrays in single precision
            return inverse, decrement
        return inverse_hessian(objective, *rest)

    def rows(self, functional: Linearised, part: slice | None = None) -> Iterator[np.ndarray]:
        """Yield G H⁻¹ of some elements (by default all) in batches [k, n]."""
        for _, solved in self._row_batches(functional, part or slice(0, len(functional.value))):
            yield solved

    def variances(self, functional: Linearised, part: slice) -> np.ndarray:
        """Return the diagonal of G H⁻¹ Gᵀ at some elements."""
        return self.blocks(functional, part, 1).ravel()

    def blocks(self, functional: Linearised, part: slice, width: int) -> np.ndarray:
        """Return the blocks along the diagonal of G H⁻¹ Gᵀ, [blocks, width, width]."""
        count = part.stop - part.start
        if isinstance(self.inverse, Dense) and count > self.size:
            return self._blocks_by_parameter(functional, self.inverse, part, width)
        if isinstance(self.inverse, Arrow) and count > self.inverse.probe_count:
            arrow_blocks = self.inverse.blocks(functional, part, width)
            if arrow_blocks is not None:
                return arrow_blocks
        self.check_count(count, "this")
        batches = [
            np.einsum("bik,bjk->bij", *(rows.reshape(-1, width, self.size) for rows in pair))
            for pair in self._row_batches(functional, part, width)
        ]
        return np.concatenate([np.zeros([0, width, width]), *batches])

    def covariance(self, functional: Linearised, rows: slice, columns: slice) -> np.ndarray:
        """Return G H⁻¹ Gᵀ of some elements (rows) with others (columns)."""
        if rows.stop - rows.start > columns.stop - columns.start:
            return self.covariance(functional, columns, rows).T
        self.check_size((rows.stop - rows.start) * (columns.stop - columns.start))
        self.check_count(rows.stop - rows.start, "the covariance")
        batches = [functional.jvp(solved)[:, columns] for solved in self.rows(functional, rows)]
        return np.concatenate([np.zeros([0, columns.stop - columns.start]), *batches])

    def check_size(self, count: int, remedy: str = REMEDY_FEWER) -> None:
        """Raise ValueError with the remedy if a result has too many numbers."""
        if count > MOST:
            raise ValueError(f"that are {count:.1e} numbers: {remedy}")

    def check_count(self, count: int, what: str) -> None:
        """Raise ValueError if so many iterative solutions would take too long."""
        if count > SOLUTIONS and self.inverse.is_iterative:
            raise ValueError(
                f"{what} has {count} elements, and each takes a solution by conjugate gradients: "
                "ask for the moments of a function of some of them, response.moments(lambda "
                "sites: ...)"
            )

    def _row_batches(
        self, functional: Linearised, part: slice, multiple: int = 1
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield batches of rows of G and of G H⁻¹."""
        size = len(functional.value)
        batch = multiple * max(1, ENTRIES // max(self.size, size) // multiple)
        for start in range(part.start, part.stop, batch):
            indices = np.arange(start, min(start + batch, part.stop))
            unit = np.zeros([len(indices), size])
            unit[np.arange(len(indices)), indices] = 1
            jacobian_rows = functional.vjp(unit)
            yield jacobian_rows, self._solve_rows(jacobian_rows)

    def _solve_rows(self, rows: np.ndarray) -> np.ndarray:
        try:
            return self.inverse.solve(rows)
        except Undetermined as undetermined:
            shares = self.layout.share_by_site(undetermined.direction**2)[:3]
            names = ", ".join(f"'{name}'" for name, _ in shares)
            raise FlatDirection(
                f"the loss is flat along a direction of {names}: neither priors nor data determine "
                "it, so that this has no variance; give these sites narrower priors, or ask for "
                "what does not depend on them"
            ) from None

    def _blocks_by_parameter(
        self, functional: Linearised, inverse: Dense, part: slice, width: int
    ) -> np.ndarray:
        """Return the same blocks by one product for each parameter."""
        batch = max(1, ENTRIES // len(functional.value))
        blocks = np.zeros([(part.stop - part.start) // width, width, width])
        for start in range(0, inverse.root.shape[1], batch):
            columns = functional.jvp(inverse.root.T[start : start + batch])[:, part]
            parts = columns.reshape(len(columns), -1, width)
            blocks += np.einsum("kbi,kbj->bij", parts, parts)
        return blocks
