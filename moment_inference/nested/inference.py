"""Nested inference: hyperparameters on a grid, and the field given each of its points."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus import UnsupportedMoments
from moment_inference.nested.conditional import Conditional, Conditioning
from moment_inference.nested.cumulant import Corrections, corrections
from moment_inference.nested.exploration.draws import nearest_points, surface_draws
from moment_inference.nested.exploration.mode import NoMode
from moment_inference.nested.factors import factorise
from moment_inference.nested.given.fieldless import WithoutField, without_corrections
from moment_inference.nested.given.host import ConditionalModel
from moment_inference.nested.given.refusals import FIT
from moment_inference.nested.given.selection import NestedHost, Selection, select
from moment_inference.nested.grid import Grid, explore
from moment_inference.nested.local import (
    chain_evidence,
    chain_of,
    local_corrections,
    node_count,
    structure_of,
)
from moment_inference.nested.marginals.shifted_log_normal import ShiftedLogNormal
from moment_inference.nested.search import Search

LARGE_CUMULANT = 0.2  # nats; its error is a quarter, as much as the evidence may be off
FEW_NODES = 500  # of quadrature: no slower than a step of the search for the Gaussian
NEGLIGIBLE = 1e-3  # nats of a correction whose error does not matter
DOUBTFUL = 0.5  # nats of a correction's error beyond which it is no basis
AT_ONCE = 5_000_000  # normal numbers
FAR = 25.0  # unconstrained, of a start: the log of 1e11
DEPTH = 8.0  # nats below the best density; what lies deeper counts as zero


@dataclass(frozen=True, eq=False)
class Inference:
    """The posterior of a model on a grid of its hyperparameters."""

    selection: Selection
    model: ConditionalModel
    uncorrected: Grid  # of the ELBO
    grid: Grid  # of the corrected log densities, at the same points
    conditional: Conditional  # at the points that count
    corrections: Corrections  # at the same
    weights: np.ndarray  # of the same in mixtures, their sum is 1

    @classmethod
    def of(
        cls,
        host: NestedHost,
        over: Collection[str] | None,
        medians: Mapping[str, np.ndarray] | None = None,
    ) -> Inference:
        """Explore the hyperparameters by the ELBO, and correct it where it counts.

        The search for their mode begins at medians, if there are some, or at the best quartiles of
        their prior.
        """
        selection = select(host, over)
        model = host.given(selection.hyperparameters, selection.field, selection.likelihoods)
        candidates = (
            starts(model.prior_quartiles())
            if medians is None
            else _unconstrained(host, selection.hyperparameters, medians)[None]
        )
        search = Search(
            WithoutField(model) if not model.size else Conditioning(model, candidates[0])
        )
        try:
            uncorrected = explore(search.evaluate, search.best_of(candidates))
        except NoMode as error:
            raise no_mode(selection, str(error)) from None
        counts = uncorrected.log_density > uncorrected.log_density.max() - DEPTH
        conditional = search.at(uncorrected.points[counts])
        found = corrected_field(model, conditional, uncorrected.weights[counts])
        corrected = np.full(len(counts), np.nan)
        corrected[counts] = conditional.log_density + found.evidence
        grid = uncorrected.with_log_density(corrected, search.evaluate)
        weights = grid.weights[counts] / grid.weights[counts].sum()
        return cls(selection, model, uncorrected, grid, conditional, found, weights)

    @cached_property
    def correction(self) -> float:
        """Return the mean correction of log p(y | θ) over the posterior, nats."""
        return float(self.weights @ self.corrections.evidence)

    @cached_property
    def correction_error(self) -> float:
        """Return about how far the corrected log p(y | θ) are off, a posterior mean, nats."""
        return abs(float(self.weights @ self.corrections.error))

    @property
    def means(self) -> np.ndarray:
        """Return the corrected means of the field at each point, [g, d]."""
        return self.conditional.mean + self.corrections.mean

    @cached_property
    def _gaussian_variances(self) -> np.ndarray:
        return self.conditional.factors.marginal_variances()

    @property
    def variances(self) -> np.ndarray:
        """Return the corrected variances of the field at each point, [g, d]."""
        return self._gaussian_variances + self.corrections.variance

    @property
    def widening(self) -> np.ndarray:
        """Return corrected over Gaussian standard deviations of the field at each point, [g, d]."""
        return np.sqrt(self.variances / self._gaussian_variances)

    def draws_of_hyperparameters(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws of the hyperparameters, [count, h]."""
        surface = self.grid.surface
        return surface.origin + surface_draws(surface, generator, count) @ surface.axes.T

    def draws(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return draws of the hyperparameters [count, h] and of the field [count, d].

        The hyperparameters are those of the surface between the points. The field is that of a
        point nearby: standard normal numbers with the Gaussian's correlations, each of which the
        corrected marginal makes an element of.
        """
        grid = self.grid
        drawn = surface_draws(grid.surface, generator, count)
        near = nearest_points(drawn, self._coordinates, self.weights, generator)
        field = self._marginals.taken(near[:, None]).at(self._correlated(generator, near))
        return grid.surface.origin + drawn @ grid.surface.axes.T, field

    def log_prior_of(self, site: str, place: int, coordinates: np.ndarray) -> np.ndarray | None:
        """Return log p of a scalar site at its coordinates; None if other sites change it.

        The place is that among the hyperparameters, or in the field.
        """
        generator, found = np.random.default_rng(0), []
        for scale in (0.0, 0.3):
            sizes = self.conditional.theta.shape[1], self.model.size
            rows = (scale * generator.normal(size=size) for size in sizes)
            theta, field = (np.tile(row, (len(coordinates), 1)) for row in rows)
            own = theta if site in self.selection.hyperparameters else field
            own[:, place] = coordinates
            found.append(self.model.densities(theta, field)[site])
        one, other = found
        return one if np.allclose(one, other, rtol=1e-9, atol=1e-9) else None

    @property
    def _coordinates(self) -> np.ndarray:
        """Return the points that count [g, h] in the coordinates of the surface."""
        surface = self.grid.surface
        return np.linalg.solve(surface.axes, (self.conditional.theta - surface.origin).T).T

    @property
    def _marginals(self) -> ShiftedLogNormal:
        return ShiftedLogNormal.of_moments(self.means, self.variances, self.corrections.third)

    def _correlated(self, generator: np.random.Generator, near: np.ndarray) -> np.ndarray:
        """Return standard normal draws [n, d] with the correlations of given points [n]."""
        if not self.model.size:
            return np.zeros((len(near), 0))
        counts = np.bincount(near, minlength=len(self.weights))
        turns = np.empty(len(near), dtype=int)  # of each draw among those of its point
        turns[np.argsort(near, kind="stable")] = np.concatenate([np.arange(n) for n in counts])
        width = max(1, AT_ONCE // self.means.size)
        found = np.empty((len(near), self.model.size))
        for first in range(0, counts.max(), width):
            noise = generator.normal(size=(*self.means.shape, width))
            now = (turns >= first) & (turns < first + width)
            draws = self.conditional.factors.draws(noise)
            found[now] = draws[near[now], :, turns[now] - first]
        return found / np.sqrt(self._gaussian_variances)[near]

    def draws_at_centre(
        self, generator: np.random.Generator, count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return draws at the best point alone, [count, h] and [count, d], and log q of the latter.

        The field has the corrected means and variances.
        """
        place = int(np.argmax(self.conditional.log_density + self.corrections.evidence))
        factors = factorise(self.conditional.precision.take(np.array([place])))
        noise = generator.normal(size=(1, self.model.size, count))
        wider = self.widening[place]
        field = self.means[place] + wider * factors.draws(noise)[0].T
        scale = factors.log_determinant[0] / 2 - np.log(wider).sum()
        density = scale - 0.5 * (noise[0] ** 2 + np.log(2 * np.pi)).sum(0)
        return np.repeat(self.conditional.theta[[place]], count, 0), field, density


def corrected_field(
    model: ConditionalModel, conditional: Conditional, weights: np.ndarray
) -> Corrections:
    """Return corrections by quadrature of local latents where that is cheap or needed.

    Elsewhere, and where quadrature fails, they are those of the second cumulant, whose pairs of
    observations take longer than the nodes when there are many.
    """
    if not model.size:
        return without_corrections(conditional)
    structure = structure_of(conditional.precision.pattern)
    count = conditional.predictor.shape[1]
    nodes = np.inf if structure is None or not count else node_count(structure)
    found = None if nodes <= max(FEW_NODES, count) else corrections(model, conditional)
    is_large = found is None or abs(found.evidence @ weights) > LARGE_CUMULANT
    if structure is not None and np.isfinite(nodes) and is_large:
        exact = local_corrections(model, conditional, structure)
        if np.isfinite(exact.evidence).all() and exact.error @ weights < DOUBTFUL:
            return exact
    return _along_chain(model, conditional, found or corrections(model, conditional), weights)


def _along_chain(
    model: ConditionalModel, conditional: Conditional, found: Corrections, weights: np.ndarray
) -> Corrections:
    """Return corrections with the evidence by quadrature along a chain, if there is one."""
    chain = chain_of(conditional) if abs(found.evidence @ weights) > NEGLIGIBLE else None
    if chain is None:
        return found
    evidence, error = chain_evidence(model, conditional, chain)
    if not np.isfinite(evidence).all() or error @ weights > found.error @ weights:
        return found
    return found._replace(evidence=evidence, error=error)


def starts(quartiles: np.ndarray) -> np.ndarray:
    """Return points where a search may begin, from quartiles [3, h] of the prior, the median first.

    They are unconstrained, and so is zero, which is a good one where the prior is nearly flat.
    """
    quartiles = np.clip(np.nan_to_num(quartiles), -FAR, FAR)
    return np.stack([quartiles[1], 0 * quartiles[1], quartiles[0], quartiles[2]])


def medians_of(guide: Any) -> dict[str, np.ndarray] | None:
    """Return the medians of a fit or of a guide by site; None of none."""
    if guide is None:
        return None
    kinds = "a Fit of the model, or a guide whose median() needs no arguments"
    if not callable(getattr(guide, "median", None)):
        raise TypeError(f"guide= is {kinds}, not of type {type(guide).__name__}")
    try:
        found = guide.median()
    except TypeError as error:
        raise TypeError(f"guide= is {kinds}; {type(guide).__name__}.median(): {error}") from None
    return {name: np.asarray(value, float) for name, value in found.items()}


def _unconstrained(
    host: NestedHost, names: Sequence[str], medians: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return the unconstrained medians of hyperparameters, [h]."""
    for name in names:
        shape = host.latent[name].shape
        if name not in medians or medians[name].shape != shape:
            raise ValueError(f"guide= is of another model: it has no median of '{name}' {shape}")
    return host.unconstrained({name: medians[name] for name in names})


def no_mode(selection: Selection, reason: str) -> UnsupportedMoments:
    """Return the error for hyperparameters whose density has no maximum."""
    return UnsupportedMoments(
        f"the posterior of {', '.join(map(repr, selection.hyperparameters))} has no mode: {reason}",
        sites=selection.hyperparameters,
        remedy=f"give them proper priors that leave zero and infinity improbable, or use {FIT}",
    )
