"""The posterior by nested inference, as users of both frameworks see it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.predictions.site import central_levels
from moment_inference.display import aligned
from moment_inference.errors import unknown_site
from moment_inference.nested.given.selection import Latent, NestedHost, slices_of
from moment_inference.nested.inference import DOUBTFUL, Inference
from moment_inference.nested.marginals import Marginal, MixtureMarginal, TableMarginal, plots
from moment_inference.nested.marginals.drawn import DrawnMarginal
from moment_inference.nested.marginals.linear import Moments, linear_moments
from moment_inference.nested.marginals.stacked import StackedMarginal

ROWS = 12  # of a site in a summary
DRAWS = 20_000  # of hyperparameters whose marginals are theirs


class NestedPosterior:
    """The posterior of a latent Gaussian model: hyperparameters on a grid, the field at each point.

    Attributes:
        hyperparameters: names of the sites on the grid.
        field: names of the latent sites that are Gaussian given them.
    """

    def __init__(self, host: NestedHost, inference: Inference) -> None:
        self._host, self._inference = host, inference
        self.hyperparameters = inference.selection.hyperparameters
        self.field = inference.selection.field

    @property
    def log_evidence(self) -> float:
        """The log density of the observations, log p(y), nats."""
        return self._inference.grid.log_evidence

    @property
    def log_evidence_error(self) -> float:
        """The predicted error of ``log_evidence``, nats: of the grid and of the correction."""
        return self._inference.grid.evidence_error + self._inference.correction_error

    @property
    def correction(self) -> float:
        """What the ELBO of the field lacks: by its second cumulant, or by quadrature, nats."""
        return self._inference.correction

    @property
    def correction_error(self) -> float:
        """About how far ``correction`` is off, nats."""
        return self._inference.correction_error

    @cached_property
    def _parts(self) -> dict[str, slice]:
        """Return where each site is among the hyperparameters, or in the field."""
        return {**self._places(self.hyperparameters), **self._places(self.field)}

    def _places(self, names: Sequence[str]) -> dict[str, slice]:
        return slices_of({name: self._host.latent[name].size for name in names})

    def marginal(self, site: str) -> Marginal:
        """The marginal posterior of a latent site, on its support.

        Args:
            site: its name.

        Returns:
            Its marginal, with ``pdf``, ``cdf``, ``quantile``, ``mean``,
            ``standard_deviation`` and more, of each element of the site; that of a
            hyperparameter whose transform mixes elements, such as a simplex, by 20 000
            draws.

        Raises:
            ValueError: if the model has no such latent site.
        """
        if site not in self._parts:
            raise unknown_site(site, self._parts)
        latent = self._host.latent[site]
        if site in self.hyperparameters:
            return self._table(site, latent)
        return self._mixture(site, latent)

    def _table(self, site: str, latent: Latent) -> Marginal:
        tables = [*self._tables(site)]
        return tables[0] if latent.shape == () else StackedMarginal(tables, latent.shape)

    def _mixture(self, site: str, latent: Latent) -> Marginal:
        shaped = [each.reshape(-1, *latent.shape) for each in self._moments(site)]
        return MixtureMarginal(self._inference.weights, shaped[0], shaped[1], shaped[2])

    def _tables(self, site: str) -> Iterator[Marginal]:
        """Yield the marginals of a hyperparameter's elements."""
        transform, grid = self._host.transform(site), self._inference.grid
        if transform is None:
            draws = self._inference.draws_of_hyperparameters(np.random.default_rng(0), DRAWS)
            values = self._host.values(self.hyperparameters, draws)[site].reshape(DRAWS, -1)
            yield from map(DrawnMarginal, values.T)
            return
        for place in range(*self._parts[site].indices(grid.points.shape[1])):
            yield TableMarginal(*grid.marginal(place), transform)

    def _elements(self, site: str) -> Iterator[Marginal]:
        """Yield the marginals of a site's elements, one by one."""
        if site in self.hyperparameters:
            yield from self._tables(site)
            return
        for mean, variance, third in zip(*(each.T for each in self._moments(site)), strict=True):
            yield MixtureMarginal(self._inference.weights, mean, variance, third)

    def _moments(self, site: str) -> Moments:
        """Return the moments of the elements of a site of the field."""
        part, found = self._parts[site], self._inference
        trial = np.random.default_rng(0).normal(size=(1, self._host.latent[site].size))
        value = self._host.values((site,), trial)[site].reshape(1, -1)
        if np.array_equal(value, trial):
            third = found.corrections.third[:, part]
            return found.means[:, part], found.variances[:, part], third
        return self._linear_moments(site, part)

    def _linear_moments(self, site: str, part: slice) -> Moments:
        """Return the moments of a site that is a linear function of its part of the field."""
        found, size = self._inference, part.stop - part.start
        points = np.concatenate([np.zeros((1, size)), np.eye(size)])
        values = self._host.values((site,), points)[site].reshape(1 + size, -1)
        matrix = np.zeros((values.shape[1], found.model.size))
        matrix[:, part] = (values[1:] - values[0]).T
        given = found.model, found.conditional, found.corrections, found.widening
        return linear_moments(*given, matrix, values[0])

    def unconstrained_moments(self, site: str) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of a site's unconstrained coordinates."""
        part, found = self._parts[site], self._inference
        if site in self.field:
            marginal = MixtureMarginal(
                found.weights, found.means[:, part], found.variances[:, part]
            )
            return marginal.mean, marginal.standard_deviation
        places = range(*part.indices(found.grid.points.shape[1]))
        tables = [TableMarginal(*found.grid.marginal(place)) for place in places]
        every = StackedMarginal(tables, (len(tables),))
        return every.mean, every.standard_deviation

    def plot(
        self,
        sites: Sequence[str] | None = None,
        *,
        prior: bool = True,
        nuts: Any = None,
        axes: Any = None,
    ) -> Any:
        """Plot the density of each element's marginal, beside its prior and draws of chains.

        Args:
            sites: names of the sites, of each the first twelve elements; by default the
                hyperparameters and the field's scalars.
            prior: whether to show the prior's density, at scalars whose prior depends on no
                other site.
            nuts: finished chains of the same model, or their draws by site, [draws, ...]; their
                histograms are shown.
            axes: axes of ``matplotlib``, as many as there are elements; by default new ones.

        Returns:
            The axes in a flat array.

        Raises:
            ImportError: if matplotlib is not installed.
            ValueError: if the model has no such latent site.
            TypeError: if ``nuts`` is something else.
        """
        chains = {} if nuts is None else plots.draws_of(nuts)
        if sites is None:
            scalars = (name for name in self.field if self._host.latent[name].shape == ())
            sites = (*self.hyperparameters, *scalars)
        panels = [panel for site in sites for panel in self._panels(site, prior, chains)]
        return plots.plot_panels(panels, axes)

    def _panels(
        self, site: str, prior: bool, chains: Mapping[str, np.ndarray]
    ) -> Iterator[plots.Panel]:
        if site not in self._parts:
            raise unknown_site(site, self._parts)
        shape, draws = self._host.latent[site].shape, chains.get(site)
        for index, marginal in itertools.islice(
            zip(np.ndindex(*shape), self._elements(site), strict=False), ROWS
        ):
            x = plots.places_of(marginal)
            known = self._prior(site, x) if prior and shape == () else None
            of_chains = None if draws is None else draws[(slice(None), *index)]
            yield plots.Panel(_label(site, index), x, marginal.pdf(x), known, of_chains)

    def _prior(self, site: str, x: np.ndarray) -> np.ndarray | None:
        """Return the prior's density of a scalar site; None if it depends on others."""
        transform = self._host.transform(site)
        if transform is None:
            return None
        coordinates = transform.inverse(x)
        logs = self._inference.log_prior_of(site, self._parts[site].start, coordinates)
        return None if logs is None else np.exp(logs)

    def plain_draws(self, generator: np.random.Generator, count: int) -> Mapping[str, np.ndarray]:
        """Return draws of all latent sites [count, ...] on their supports."""
        theta, field = self._inference.draws(generator, count)
        return self._on_supports(theta, field)

    def draws_at_centre(
        self, generator: np.random.Generator, count: int
    ) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        """Return draws by site given the best hyperparameters, and the field's log density."""
        theta, field, density = self._inference.draws_at_centre(generator, count)
        return self._on_supports(theta, field), density

    def _on_supports(self, theta: np.ndarray, field: np.ndarray) -> dict[str, np.ndarray]:
        return self._host.values(self.hyperparameters, theta) | self._host.values(self.field, field)

    @property
    def doubts(self) -> dict[str, str]:
        """What speaks against the result, a sentence for each of the parts that are not right."""
        found, grid = dict[str, str](), self._inference.grid
        if grid.has_two_modes:
            names = ", ".join(map(repr, self.hyperparameters))
            found["modes"] = f"the posterior of {names} has {grid.modes} modes on the grid"
        if self.correction_error > DOUBTFUL:
            found["correction"] = (
                f"the field is far from Gaussian: its correction of {self.correction:.1f} nats "
                f"may be {self.correction_error:.1f} nats off"
            )
        if grid.edge_mass > 1e-3:
            found["edge"] = f"{grid.edge_mass:.1%} of the mass is beyond the edge of the grid"
        return found

    @property
    def warnings(self) -> list[str]:
        """What speaks against the result, a sentence each; empty if nothing does."""
        return [*self.doubts.values()]

    def summary(self, mass: float = 0.9) -> str:
        """A table of all latent sites, with the first elements of large ones.

        Args:
            mass: probability inside the intervals.

        Returns:
            Lines with mean, standard deviation, skewness and interval, the evidence with its
            predicted error, and what speaks against the result.
        """
        low, high = central_levels(mass)
        heading = ["site", "mean", "sd", "skewness", f"{100 * low:g} %", f"{100 * high:g} %"]
        rows = [heading]
        for site in (*self.hyperparameters, *self.field):
            rows += _rows(site, self.marginal(site), (low, high))
        evidence = f"log evidence {self.log_evidence:.3f} ± {self.log_evidence_error:.3f}"
        return "\n".join([*aligned(rows), evidence, *self.warnings])


def _label(site: str, at: tuple[int, ...] = ()) -> str:
    """Return the name of an element of a site."""
    return f"{site}[{','.join(map(str, at))}]" if at else site


def _rows(site: str, marginal: Marginal, levels: tuple[float, float]) -> list[list[str]]:
    ends = [np.asarray(marginal.quantile(level)) for level in levels]
    arrays = [marginal.mean, marginal.standard_deviation, marginal.skewness, *ends]
    if marginal.shape == ():
        return [[_label(site), *(f"{float(array):.3f}" for array in arrays)]]
    places = list(np.ndindex(*marginal.shape))
    rows = [[_label(site, at), *(f"{array[at]:.3f}" for array in arrays)] for at in places[:ROWS]]
    return (
        rows if len(places) <= ROWS else [*rows, [f"{site}: {len(places) - ROWS} more"] + [""] * 5]
    )
