"""Corrected moments of the latent sites on the unconstrained space."""

from __future__ import annotations

import contextlib
import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.linalg import LinAlgError

from moment_calculus.errors import warn_user
from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.numerics.one_thread import one_thread_at_a_time
from moment_calculus.numerics.quadrature import gauss_hermite
from moment_calculus.predictions.site import central_levels
from moment_inference.errors import FlatDirection, NarrowerVarianceWarning
from moment_inference.optimisation.summary import site_table
from moment_inference.response.inverse_curvature import InverseCurvature, Selection
from moment_inference.response.problem import Latent, Problem

POINTS = 64  # of the quadrature of a transform
DRAWS = 10_000  # of sites whose coordinates are mixed on their supports
DENSE = 3000  # most coordinates whose covariance is factored


@one_thread_at_a_time
class CorrectedMoments:
    """Corrected standard deviations and covariances of the latent sites."""

    def __init__(self, problem: Problem, tolerance: float) -> None:
        # NotAnOptimum is raised if the Newton decrement exceeds the tolerance, in nats.
        with problem.context():
            self.problem, self._curvature = problem, InverseCurvature(problem, tolerance)
            self._variances = self._known_variances()
            if not self._curvature.inverse.is_iterative:
                _warn_narrower(self._narrower())

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The unconstrained shapes of the latent sites, in the order of the joint covariance."""
        return {name: latent.loc.shape for name, latent in self._curvature.layout.latents.items()}

    @property
    def decrement(self) -> float:
        """Newton decrement at the parameters, in nats: what one more Newton step would gain."""
        return self._curvature.decrement

    def location(self, site: str) -> Any:
        """Posterior mean on the unconstrained space.

        Args:
            site: a latent site.
        """
        return self._array(self._latent(site).loc)

    def standard_deviation(self, site: str) -> Any:
        """Corrected standard deviations on the unconstrained space, of the site's shape.

        Args:
            site: a latent site.
        """
        return self._array(np.sqrt(self._variance(site)))

    def covariance(self, first: str | None = None, second: str | None = None) -> Any:
        """Corrected covariance on the unconstrained space.

        Args:
            first: a latent site; by default all, in the order of ``sites``, as one
                vector.
            second: another; by default the same.

        Returns:
            Array of the shapes of both one after the other.
        """
        return self._array(self._covariance(first, second))

    def correlation(self, first: str | None = None, second: str | None = None) -> Any:
        """Corrected correlation on the unconstrained space; arguments as for ``covariance``."""
        ends = [np.sqrt(self._variance(site)) for site in (first, second or first)]
        return self._array(self._covariance(first, second) / np.multiply.outer(*ends))

    def interval(self, mass: float = 0.9) -> dict[str, tuple[Any, Any]]:
        """Central credible intervals of every latent site, on its support.

        Args:
            mass: probability inside, between 0 and 1.

        Returns:
            Lower and upper ends by site, each of the site's shape: quantiles of the
            corrected Gaussian on the unconstrained space, taken to the support.

        Raises:
            ValueError: if ``mass`` is not between 0 and 1, or a site's coordinates are
                mixed on its support, as those of a simplex.
        """
        intervals = self._intervals(mass).items()
        return {site: (self._array(low), self._array(high)) for site, (low, high) in intervals}

    def narrower(self) -> dict[str, Any]:
        """Sites where corrected variances are smaller than the guide's.

        With an exact ELBO there are none: at its optimum the curvature by a location is
        the inverse of the guide's variance. Either the scales of the guide are not the
        best, or the ELBO is approximate, as for a network.

        Returns:
            By site, the ratios of corrected to the guide's variances, of the site's
            shape.
        """
        return {site: self._array(ratios) for site, ratios in self._narrower().items()}

    def _narrower(self) -> dict[str, np.ndarray]:
        ratios_by_site = {}
        for site in self.sites:
            with contextlib.suppress(FlatDirection):
                if (ratios := self._ratios(site)) is not None:
                    ratios_by_site[site] = ratios
        return ratios_by_site

    def _ratios(self, site: str) -> np.ndarray | None:
        """Return corrected over guide's variances if one is below one, otherwise None."""
        # Differences smaller than the distance to the optimum are ignored: near it the
        # relative error of a scale is about the root of the decrement.
        distance = 2 * (2 * max(self._curvature.decrement, 0.0)) ** 0.5
        threshold = 1 - distance - 10 * self.problem.program.objective.precision**0.5
        variance, guides = self._variance(site), self._latent(site).scale ** 2
        return variance / guides if (variance < threshold * guides).any() else None

    def summary(self, mass: float = 0.9, *, unconstrained: bool = False) -> str:
        """A table of all latent sites, with the first elements of large ones.

        Means and standard deviations on a support are integrals of the transform over
        the Gaussian coordinates; of sites whose coordinates are mixed on it, such as a
        simplex, they are those of the same 10 000 draws each time, as are the intervals.

        Args:
            mass: probability inside the intervals.
            unconstrained: whether the table is of the unconstrained space, on which the
                posterior is Gaussian; by default of the sites' supports.

        Returns:
            Lines with mean and standard deviations, the guide's and the corrected ones,
            their ratio and the interval, all on the same space.
        """
        levels = central_levels(mass)
        columns = self._unconstrained_columns if unconstrained else self._support_columns
        return site_table({site: columns(site, levels).by_heading(levels) for site in self.sites})

    def _unconstrained_columns(self, site: str, levels: tuple[float, float]) -> Columns:
        latent, deviation = self._latent(site), np.sqrt(self._variance(site))
        ends = (latent.loc + float(scipy.special.ndtri(level)) * deviation for level in levels)
        return Columns(latent.loc, latent.scale, deviation, *ends)

    def _support_columns(self, site: str, levels: tuple[float, float]) -> Columns:
        latent = self._latent(site)
        if not latent.is_elementwise:
            return self._columns_of_draws(latent, levels)
        mean, corrected = self._support_moments(latent, np.sqrt(self._variance(site)))
        guides = self._support_moments(latent, latent.scale)[1]
        return Columns(
            mean, guides, corrected, *self._interval(site, float(scipy.special.ndtri(levels[1])))
        )

    def _support_moments(
        self, latent: Latent, deviation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation on a support, by quadrature of its transform."""
        nodes, weights = (
            part.reshape(-1, *[1] * latent.loc.ndim) for part in gauss_hermite(POINTS)
        )
        values = self._on_support(latent, latent.loc + deviation * nodes)
        mean = (weights * values).sum(0)
        with np.errstate(invalid="ignore"):
            variance = (weights * (values - mean) ** 2).sum(0)
        return mean, np.sqrt(np.where(np.isfinite(mean), variance, np.inf))

    def _columns_of_draws(self, latent: Latent, levels: tuple[float, float]) -> Columns:
        generator, part = np.random.default_rng(0), self._curvature.layout.slices[latent.name]
        noise = generator.standard_normal((DRAWS, *latent.loc.shape))
        guides = self._on_support(latent, latent.loc + latent.scale * noise)
        steps = self._steps(generator, DRAWS)[:, part].reshape(noise.shape)
        corrected = self._on_support(latent, latent.loc + steps)
        ends = np.quantile(corrected, levels, axis=0)
        return Columns(corrected.mean(0), guides.std(0), corrected.std(0), *ends)

    def _on_support(self, latent: Latent, coordinates: np.ndarray) -> np.ndarray:
        return to_numpy(latent.to_support(self._array(coordinates)), np.float64)

    def __repr__(self) -> str:
        """Return the sites with their shapes."""
        sites = ", ".join(f"{site} {list(shape)}" for site, shape in self.sites.items())
        return f"{type(self).__name__}({sites})"

    def _known_variances(self) -> dict[str, np.ndarray]:
        """Return variances of sites whose coordinates are parameters, by diag(H⁻¹)."""
        curvature = self._curvature
        diagonal = curvature.inverse.diagonal()
        if diagonal is None or not isinstance(curvature.locations, Selection):
            return {}
        variances, slices = diagonal[curvature.locations.indices], curvature.layout.slices
        return {
            site: variances[slices[site]].reshape(shape)
            for site, shape in self.sites.items()
            if np.isfinite(variances[slices[site]]).all()
        }

    def _variance(self, site: str | None) -> np.ndarray:
        if site is None:
            return np.concatenate([self._variance(name).ravel() for name in self.sites])
        if site not in self._variances:
            latent, part = self._latent(site), self._curvature.layout.slices[site]
            self._curvature.check_count(latent.loc.size, f"site '{site}'")
            variances = self._curvature.variances(self._curvature.locations, part)
            self._variances[site] = variances.reshape(latent.loc.shape)
            ratios = self._ratios(site) if self._curvature.inverse.is_iterative else None
            if ratios is not None:
                _warn_narrower({site: ratios})
        return self._variances[site]

    def _covariance(self, first: str | None, second: str | None) -> np.ndarray:
        second = first if second is None else second
        (one, rows), (other, columns) = (self._part(site) for site in (first, second))
        covariance = self._curvature.covariance(self._curvature.locations, one, other)
        return covariance.reshape(rows + columns)

    def _part(self, site: str | None) -> tuple[slice, tuple[int, ...]]:
        """Return slice and shape of a site's coordinates; of all for None."""
        if site is None:
            count = len(self._curvature.locations.value)
            return slice(0, count), (count,)
        shape = self._latent(site).loc.shape
        return self._curvature.layout.slices[site], shape

    def _intervals(self, mass: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        half_width = float(scipy.special.ndtri(central_levels(mass)[1]))
        return {site: self._interval(site, half_width) for site in self.sites}

    def _interval(self, site: str, half_width: float) -> tuple[np.ndarray, np.ndarray]:
        if not self._latent(site).is_elementwise:
            raise ValueError(
                f"the coordinates of site '{site}' are mixed on its support: take quantiles of "
                "response.sample(...)"
            )
        latent, half = self._latent(site), half_width * np.sqrt(self._variance(site))
        low, high = (self._on_support(latent, latent.loc + sign * half) for sign in (-1, 1))
        return np.minimum(low, high), np.maximum(low, high)

    def _latent(self, site: str) -> Latent:
        latents = self._curvature.layout.latents
        if site not in latents:
            names = ", ".join(map(repr, latents))
            raise ValueError(f"{site!r} is no latent site of the model; there are {names}")
        return latents[site]

    def _array(self, values: np.ndarray) -> Any:
        return self.problem.array(values)

    def plain_draws(self, generator: np.random.Generator, count: int) -> dict[str, Any]:
        """Draws of the corrected posterior, by a generator of NumPy.

        Args:
            generator: of NumPy.
            count: how many.

        Returns:
            Arrays [count, ...] by latent site, on the sites' supports.
        """
        return self._on_supports(self._steps(generator, count))

    def weighted_draws(
        self, generator: np.random.Generator, count: int
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Draws of the corrected posterior with their log densities, for importance weights.

        Args:
            generator: of NumPy.
            count: how many.

        Returns:
            Arrays [count, ...] by latent site, and the log density on the supports,
            [count].

        Raises:
            ValueError: if there are too many coordinates for a dense covariance, or it is
                singular.
        """
        size = len(self._curvature.locations.value)
        if size > DENSE:
            raise ValueError(
                f"the corrected Gaussian has {size} coordinates: its density takes their dense "
                f"covariance, which is made up to {DENSE}"
            )
        offsets = self._steps(generator, count)
        return self._on_supports(offsets), self._log_density(offsets)

    def _log_density(self, offsets: np.ndarray) -> np.ndarray:
        size, parts, factor = offsets.shape[1], self._curvature.layout.slices, self._factor
        white = scipy.linalg.solve_triangular(factor, offsets.T, lower=True)
        log_density = -0.5 * (white**2).sum(0) - 0.5 * size * math.log(2 * math.pi)
        log_density -= np.log(np.diagonal(factor)).sum()
        for site, latent in self._curvature.layout.latents.items():
            steps = offsets[:, parts[site]].reshape(len(offsets), *latent.loc.shape)
            slopes = latent.log_slope(self._array(latent.loc + steps))
            log_density -= to_numpy(slopes, np.float64).reshape(len(offsets), -1).sum(1)
        return log_density

    def _steps(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws of coordinates relative to locations, [count, coordinates]."""
        inverse, locations = self._curvature.inverse, self._curvature.locations
        size = len(locations.value)
        if inverse.is_iterative and size <= min(count, DENSE):  # fewer solutions than draws
            return generator.normal(size=[count, size]) @ self._factor.T
        return locations.jvp(inverse.draws(generator, count))

    @cached_property
    def _factor(self) -> np.ndarray:
        """The lower factor of the covariance of all coordinates."""
        try:
            return scipy.linalg.cholesky(self._covariance(None, None), lower=True)
        except LinAlgError:
            raise ValueError("the corrected covariance is singular: it has no density") from None

    def _on_supports(self, offsets: np.ndarray) -> dict[str, Any]:
        curvature, count, draws = self._curvature, len(offsets), {}
        for site, latent in curvature.layout.latents.items():
            steps = offsets[:, curvature.layout.slices[site]].reshape(count, *latent.loc.shape)
            draws[site] = latent.to_support(self._array(latent.loc + steps))
        return draws


def _warn_narrower(narrower: dict[str, np.ndarray]) -> None:
    if narrower:
        names = ", ".join(
            f"'{site}' (the smallest ratio is {ratios.min():.3g})"
            for site, ratios in narrower.items()
        )
        warn_user(
            f"corrected variances are smaller than the guide's at {names}: its scales are not the "
            "best there, or tied to other parameters (as those of a TridiagonalGuide), or the ELBO "
            "is not exact; compare with NUTS",
            NarrowerVarianceWarning,
        )


HEADINGS = ("mean", "guide's sd", "corrected sd", "ratio")


class Columns(NamedTuple):
    """The columns of a site in a table, arrays of the site's shape."""

    mean: np.ndarray
    guides: np.ndarray  # standard deviations of the guide
    corrected: np.ndarray  # corrected standard deviations
    low: np.ndarray  # ends of the interval
    high: np.ndarray

    def by_heading(self, levels: tuple[float, float]) -> dict[str, np.ndarray]:
        """Return all columns of the table, with the ratio of the standard deviations."""
        ratio = np.full(self.mean.shape, np.inf)
        np.divide(self.corrected, self.guides, out=ratio, where=self.guides > 0)
        parts = self.mean, self.guides, self.corrected, ratio, self.low, self.high
        ends = (f"{100 * level:.3g}%" for level in levels)
        return dict(zip((*HEADINGS, *ends), parts, strict=True))
