"""Linear response: moments of the posterior beyond those of its approximation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from moment_calculus.hosts.moments import Moments
from moment_calculus.refusals.notices import warn_user
from moment_calculus.response.errors import NarrowerVarianceWarning
from moment_calculus.response.functional import Functional, Selected
from moment_calculus.response.latents import Latent
from moment_calculus.response.problem import Perturbation, Problem, Quantities, Quantity
from moment_calculus.response.solved import Solved


class Response:
    """Corrected moments of a posterior, and how they depend on priors and data.

    Args:
        problem: model, guide and data at their optimum.
        tolerance: Newton decrement up to which it is one, in nats.

    Raises:
        NotAnOptimum: if it is none; the message names the sites and the remedy.
    """

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self._problem, self._solved = problem, Solved(problem, tolerance)
        self._variances = self._known_variances()
        if self._variances:
            _warn_of(self._narrower())

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The unconstrained shapes of the latent sites, in the order of the joint covariance."""
        return {name: latent.loc.shape for name, latent in self._solved.layout.latents.items()}

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
            first: a latent site; by default all, in the order of ``sites``, as one vector.
            second: another; by default the same.

        Returns:
            Array of the shapes of both one after the other.
        """
        return self._array(self._covariance(first, second))

    def correlation(self, first: str | None = None, second: str | None = None) -> Any:
        """Corrected correlation on the unconstrained space; arguments as of ``covariance``."""
        ends = [np.sqrt(self._variance(site)) for site in (first, second or first)]
        return self._array(self._covariance(first, second) / np.multiply.outer(*ends))

    def interval(self, mass: float = 0.9) -> dict[str, tuple[Any, Any]]:
        """Central credible intervals of every latent site, on its support.

        Args:
            mass: probability inside, between 0 and 1.

        Returns:
            Lower and upper ends by site, each of the site's shape: quantiles of the corrected
            Gaussian on the unconstrained space, taken to the support.

        Raises:
            ValueError: if ``mass`` is not between 0 and 1.
        """
        if not 0 < mass < 1:
            raise ValueError(f"the mass of an interval is between 0 and 1, not {mass!r}")
        reach = float(ndtri((1 + mass) / 2))
        return {site: self._interval(site, reach) for site in self.sites}

    def narrower(self) -> dict[str, Any]:
        """Where corrected variances are smaller than the guide's.

        With an ELBO that is exact they never are, for at its optimum the curvature by a location
        is the inverse of the guide's variance: either the guide has other scales than the best, or
        the ELBO is approximate, as of a network.

        Returns:
            By site, of those that have one, the ratios of corrected to the guide's variances, of
            the site's shape.
        """
        return {site: self._array(ratios) for site, ratios in self._narrower().items()}

    def _narrower(self) -> dict[str, np.ndarray]:
        least, found = 1 - 10 * self._problem.objective.precision**0.5, {}
        for site in self.sites:
            variance = self._latent(site).scale ** 2
            if (self._variance(site) < least * variance).any():
                found[site] = self._variance(site) / variance
        return found

    def moments(self, of: Quantity, *args: Any, **named: Any) -> Any:
        """Expectations under the guide with their corrected covariances G H⁻¹ Gᵀ.

        Args:
            of: a site of the model, latent, deterministic or observed (of these it is the mean of
                what is observed that counts), or a function of a dictionary of the values of latent
                and deterministic sites, of operations that moments propagate through.
            *args: of the model, where not its data count but others, such as new inputs.
            **named: likewise, by name.

        Returns:
            :class:`Moments`, with the covariance over the trailing axis; a dictionary or tuple of
            them if the function returns one of arrays.

        Source: Giordano, Broderick and Jordan 2018, section 3.
        """
        asked = self._problem.quantities(of, args, named)
        return asked.rebuilt(self._moments(asked, [len(shape) > 0 for shape in asked.shapes]))

    def predict(self, *args: Any, **named: Any) -> dict[str, Any]:
        """Predict what the model observes, with the corrected variances G H⁻¹ Gᵀ.

        The Gaussians of which a likelihood's parameters are made, such as the predictor of a
        regression, get corrected variances, and covariances where the parameter is a vector:
        logits of classes. Covariances between two parameters of one likelihood are left out.

        Args:
            *args: of the model, with new inputs and, usually, without observations; by default
                those of the data.
            **named: likewise, by name.

        Returns:
            By site what ``predict`` returns: a ``Prediction``, or :class:`Moments` of a
            deterministic site.
        """
        predictive = self._problem.predictive(args, named)
        with self._problem.precision():
            return predictive.corrected(self._moments(predictive.sources, predictive.joint))

    def influence(self, of: Quantity, *args: Any, datum: str | None = None, **named: Any) -> Any:
        """How expectations change with the weight of each datum, without a refit.

        Args:
            of: as of ``moments``, and so are the model's arguments.
            *args: of the model.
            datum: the plate whose elements are the data; by default all plates that are around
                every observation together, and without plates the elements of the one observed
                site.

            **named: arguments of the model by name.

        Returns:
            Array of the quantity's shape, then the data's: the derivative by the weight of a
            datum's log-likelihood at one. Minus this approximates what leaving it out changes.

        Raises:
            ValueError: if it is not clear what one datum is.
        """
        asked, found = self._changes(of, args, named, self._problem.weights_of_data(datum))
        return asked.rebuilt([self._array(part) for part in asked.parts(found[None])])

    def standard_error(
        self, of: Quantity, *args: Any, datum: str | None = None, **named: Any
    ) -> Any:
        """Frequentist standard errors of posterior expectations, by the infinitesimal jackknife.

        They hold also where the model is wrong: what the expectation would vary by with other
        data of the same kind, if the data are independent.

        Args:
            of: as of ``moments``, and so are the model's arguments.
            *args: of the model.
            datum: as of ``influence``.
            **named: arguments of the model by name.

        Returns:
            Array of the quantity's shape.

        Source: Giordano and Broderick 2023, The Bayesian infinitesimal jackknife.
        """
        asked, found = self._changes(of, args, named, self._problem.weights_of_data(datum))
        by_datum = found[None].reshape(len(found[None]), -1)
        errors = np.sqrt(((by_datum - by_datum.mean(1, keepdims=True)) ** 2).sum(1))
        return asked.rebuilt([self._array(part) for part in asked.parts(errors)])

    def prior_sensitivity(self, of: Quantity, *args: Any, **named: Any) -> Any:
        """How expectations change with the parameters of the priors, without a refit.

        Args:
            of: as of ``moments``, and so are the model's arguments.
            *args: of the model.
            **named: likewise, by name.

        Returns:
            By site and parameter of its prior's distribution, an array of the quantity's shape,
            then the parameter's as the model wrote it. Parameters that depend on other latent
            sites are left out.
        """
        asked, found = self._changes(of, args, named, self._problem.prior_parameters())
        by_site: dict[str, dict[str, Any]] = {}
        for (site, parameter), changes in found.items():
            parts = [self._array(part) for part in asked.parts(changes)]
            by_site.setdefault(site, {})[parameter] = asked.rebuilt(parts)
        return by_site

    def _changes(
        self, of: Quantity, args: tuple, named: dict[str, Any], perturbation: Perturbation
    ) -> tuple[Quantities, dict[Any, np.ndarray]]:
        """What is asked for, and its derivatives by what is perturbed, flat along the first axis.

        Source: Giordano, Broderick and Jordan 2018, section 4.
        """
        asked = self._problem.quantities(of, args, named)
        self._solved.check_count(len(asked.functional.value), "this")
        found = [perturbation.along(rows) for rows in self._solved.rows(asked.functional)]
        return asked, {key: -np.concatenate([part[key] for part in found]) for key in found[0]}

    def _moments(self, asked: Quantities, joint: Sequence[bool]) -> list[Moments]:
        """Of each quantity, with covariances over its trailing axis if they are joint."""
        parts = zip(asked.slices, asked.shapes, joint, strict=True)
        return [self._moments_of(asked.functional, *part) for part in parts]

    def _moments_of(
        self, functional: Functional, part: slice, shape: tuple[int, ...], joint: bool
    ) -> Moments:
        mean = self._array(functional.value[part].reshape(shape))
        if not joint or self._solved.variances_alone(shape):
            variance = self._solved.variances(functional, part)
            return self._made(mean, variance=self._array(variance.reshape(shape)))
        last = shape[-1]
        blocks = [
            self._solved.covariance(functional, slice(start, start + last))[:, start : start + last]
            for start in range(part.start, part.stop, last)
        ]
        return self._made(mean, covariance=self._array(np.stack(blocks).reshape(*shape, last)))

    def _made(self, mean: Any, **second: Any) -> Moments:
        with self._problem.precision():
            return Moments(mean, **second)

    def _known_variances(self) -> dict[str, np.ndarray]:
        """Of all coordinates, where these are parameters and the diagonal of H⁻¹ is known."""
        solved = self._solved
        diagonal = solved.inverse.diagonal()
        if diagonal is None or not isinstance(solved.locations, Selected):
            return {}
        found, slices = diagonal[solved.locations.places], solved.layout.slices
        return {
            site: found[slices[site]].reshape(shape)
            for site, shape in self.sites.items()
            if np.isfinite(found[slices[site]]).all()
        }

    def _variance(self, site: str | None) -> np.ndarray:
        if site is None:
            return np.concatenate([self._variance(name).ravel() for name in self.sites])
        if site not in self._variances:
            latent, part = self._latent(site), self._solved.layout.slices[site]
            self._solved.check_count(latent.loc.size, f"site '{site}'")
            found = self._solved.variances(self._solved.locations, part)
            self._variances[site] = found.reshape(latent.loc.shape)
        return self._variances[site]

    def _covariance(self, first: str | None, second: str | None) -> np.ndarray:
        second = first if second is None else second
        (one, rows), (other, columns) = (self._part(site) for site in (first, second))
        self._solved.check_count(one.stop - one.start, "the covariance")
        found = self._solved.covariance(self._solved.locations, one)[:, other]
        return found.reshape(rows + columns)

    def _part(self, site: str | None) -> tuple[slice, tuple[int, ...]]:
        """Where a site's coordinates are, and their shape."""
        if site is None:
            count = len(self._solved.locations.value)
            return slice(0, count), (count,)
        shape = self._latent(site).loc.shape
        return self._solved.layout.slices[site], shape

    def _interval(self, site: str, reach: float) -> tuple[Any, Any]:
        latent, half = self._latent(site), reach * np.sqrt(self._variance(site))
        low, high = (
            np.asarray(latent.to_support(self._array(latent.loc + sign * half))) for sign in (-1, 1)
        )
        return self._array(np.minimum(low, high)), self._array(np.maximum(low, high))

    def _latent(self, site: str) -> Latent:
        latents = self._solved.layout.latents
        if site not in latents:
            known = ", ".join(map(repr, latents))
            raise ValueError(f"{site!r} is no latent site of the model; there are {known}")
        return latents[site]

    def _array(self, values: np.ndarray) -> Any:
        return self._problem.array(values)

    def _draws(self, generator: np.random.Generator, count: int) -> dict[str, Any]:
        """Of the latent sites on their supports, [count, ...] by site."""
        solved = self._solved
        moved = solved.locations.push(solved.inverse.draws(generator, count))
        return {
            site: latent.to_support(
                self._array(
                    latent.loc + moved[:, solved.layout.slices[site]].reshape(-1, *latent.loc.shape)
                )
            )
            for site, latent in solved.layout.latents.items()
        }


def _warn_of(narrower: dict[str, np.ndarray]) -> None:
    if narrower:
        names = ", ".join(
            f"'{site}' (down to {ratios.min():.3g} of them)" for site, ratios in narrower.items()
        )
        warn_user(
            f"corrected variances are smaller than the guide's at {names}: its scales are not the "
            "best there, or the ELBO is not exact; compare with NUTS",
            NarrowerVarianceWarning,
        )
