"""A trained guide with its model and data, as comparisons and diagnoses ask for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.criticism.comparison.predictions import Mixture, Predicted
from moment_calculus.criticism.comparison.runnable import RunnableModel
from moment_calculus.criticism.comparison.sites import Coordinates
from moment_calculus.criticism.comparison.wording import (
    BY_DRAWS,
    improper_priors,
    random_density,
    without_prior,
)
from moment_calculus.criticism.containers.draws import Arrays, Draws
from moment_calculus.criticism.containers.groups import Wanted, converted
from moment_calculus.hosts.predictions import PredictedSite
from moment_calculus.hosts.predictions.sampled import SampledSite
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.response.latents import Latent
from moment_calculus.response.response import Response

RESPONSE = "linear response"
DRAWS = 1000  # of predictions, for distances; of guides, for leave-one-out
MANY = 10_000  # of guides whose moments are not known
NUMBERS = 2**24  # of predictions of all draws that are held at once
CLOSE = 1e-4  # relative difference of coordinates that are the same
REFUSALS = (ValueError, UnsupportedMoments)


class Subject(ABC):
    """A trained guide with its model and data.

    Args:
        host: name of the probabilistic language.
        guide: the guide.
        test: arguments of the model for predictions; None for the data.
    """

    by_draws: Any = None  # ``Fit.by_draws`` of what ``fit`` returned

    def __init__(self, host: str, guide: Any, test: tuple | None) -> None:
        if test is not None and not isinstance(test, tuple):
            raise TypeError(
                f"test takes arguments of the model, a tuple, not {type(test).__name__}: test=(x,)"
            )
        self.host, self.guide, self.test = host, guide, test
        self.source, self.notes = type(guide).__name__, list[str]()
        self.refusal: Exception | None = None  # of linear response

    @property
    @abstractmethod
    def program(self) -> RunnableModel:
        """The model with the data."""

    @property
    @abstractmethod
    def tested(self) -> RunnableModel:
        """The model with the arguments for predictions."""

    @abstractmethod
    def running(self) -> AbstractContextManager:
        """A context in which the model is run, with the trained parameters."""

    @abstractmethod
    def draw(self, source: str, count: int) -> Draws:
        """Draws of the guide, or of linear response.

        Args:
            source: which.
            count: how many.
        """

    @abstractmethod
    def latents(self) -> Mapping[str, Latent]:
        """The latent sites as functions of Gaussian coordinates, by name.

        Raises:
            UnsupportedMoments: if they are none.
            ValueError: if the objective is random.
        """

    @abstractmethod
    def respond(self) -> Response:
        """Linear response.

        Raises:
            ValueError: if it is refused.
            UnsupportedMoments: likewise.
        """

    @abstractmethod
    def predict(self) -> dict[str, Any]:
        """What the guide predicts, by site, with the arguments for predictions."""

    @abstractmethod
    def sample(self, prediction: PredictedSite, count: int) -> np.ndarray:
        """Draws of a prediction.

        Args:
            prediction: of a site.
            count: how many.
        """

    @cached_property
    def response(self) -> Response | str:
        """Linear response, or why there is none."""
        try:
            return self.respond()
        except REFUSALS as refusal:
            self.refusal = refusal
            return str(refusal)

    @property
    def sources(self) -> list[str]:
        """The guide, and linear response unless it is refused."""
        return [self.source] if isinstance(self.response, str) else [self.source, RESPONSE]

    def check_density(self) -> None:
        """Refuse a model whose density is random, and note what NUTS has no counterpart of.

        Raises:
            ValueError: if it is.
        """
        first = self.draws(self.source).first
        twice = {name: np.stack([value, value]) for name, value in first.items()}
        with self.running():
            one, other = self.program.log_joint(twice)
            improper = self.program.improper
        if one != other:
            raise random_density(self.host)
        if reason := getattr(self.guide, "no_prior", ""):
            self.notes.append(without_prior(self.source, reason))
        if improper:
            self.notes.append(improper_priors(improper))

    def log_joint(self, draws: Draws) -> np.ndarray:
        """Log density of draws and observations together, [chains · draws].

        Args:
            draws: of the latent sites.
        """
        with self.running():
            return self.program.log_joint(draws.flat)

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Draws on the unconstrained space.

        Args:
            values: by site, on the supports.
        """
        with self.running():
            return self.program.unconstrained(values)

    @property
    def observed(self) -> Arrays:
        """Values of the observed sites that have one."""
        with self.running():
            return self.program.observed

    @property
    def held_out(self) -> Arrays:
        """The same of the arguments for predictions."""
        with self.running():
            return self.tested.observed

    def masked(self, held_out: bool) -> Mapping[str, int]:
        """How many elements of observed sites a mask hides, by site.

        Args:
            held_out: whether of the arguments for predictions, not of the data.
        """
        with self.running():
            return (self.tested if held_out else self.program).masked

    @cached_property
    def _draws(self) -> dict[str, Draws]:
        return {}

    def draws(self, source: str) -> Draws:
        """Draws of an approximation, always the same ones.

        Args:
            source: the guide, or linear response.
        """
        if source not in self._draws:
            self._draws[source] = self.draw(source, DRAWS)
        return self._draws[source]

    @property
    def latent(self) -> list[str]:
        """Names of the latent sites."""
        return [*self.draws(self.source).values]

    def container(self, draws: Draws) -> Any:
        """An ``InferenceData``, without the prior.

        Args:
            draws: of the latent sites.
        """
        with self.running():
            return converted(self.program, draws, Wanted())

    def coordinates(self, source: str) -> Coordinates:
        """Of the guide, or of linear response, on the unconstrained space of the chains.

        Args:
            source: which.
        """
        try:
            return self._exact_coordinates(source)
        except REFUSALS as refusal:
            note = BY_DRAWS.format(source=source, count=MANY, reason=refusal)
            self.notes.append(note)
        values = self.draw(source, MANY).values
        return Coordinates.of_draws(self.unconstrained(values))

    def _exact_coordinates(self, source: str) -> Coordinates:
        latents = self.latents()
        self._check_coordinates(latents)
        locs = {name: latent.loc for name, latent in latents.items()}
        if source == self.source:
            return Coordinates(locs, {name: latent.scale for name, latent in latents.items()})
        response = self.response
        assert not isinstance(response, str)
        scales = {name: np.asarray(response.standard_deviation(name)) for name in latents}
        return Coordinates(locs, scales)

    def _check_coordinates(self, latents: Mapping[str, Latent]) -> None:
        """Refuse a guide that is Gaussian on other coordinates than those of the chains."""
        there = {n: np.asarray(one.to_support(self.array(one.loc))) for n, one in latents.items()}
        for name, back in self.unconstrained(there).items():
            loc = latents[name].loc
            if back.shape != loc.shape or not np.allclose(back, loc, rtol=CLOSE, atol=CLOSE):
                raise ValueError(f"the guide has other coordinates of '{name}' than the chains")

    @abstractmethod
    def array(self, values: np.ndarray) -> Any:
        """An array of the host.

        Args:
            values: of NumPy.
        """

    def predicted(self, source: str) -> dict[str, Predicted]:
        """What the guide or linear response predicts, by site.

        Args:
            source: which.
        """
        found = self.predictions(source)
        return {
            name: Predicted(*_moments(site), self._outcomes(site, DRAWS))
            for name, site in found.items()
        }

    def predictions(self, source: str) -> dict[str, PredictedSite]:
        """The predictions themselves, by observed site.

        Args:
            source: the guide, or linear response.
        """
        if source == self.source:
            found = self.predict()
        else:
            assert not isinstance(self.response, str)
            found = self.response.predict(*(self.test or ()))
        return {name: site for name, site in found.items() if isinstance(site, PredictedSite)}

    def mixtures(self, chains: Draws) -> dict[str, Mixture]:
        """What chains predict, by site.

        Args:
            chains: their draws.
        """
        with self.running():
            size = sum(int(np.prod(site.shape)) for site in self.tested.sites.values())
            thinned = chains.thinned(max(2, NUMBERS // max(1, size)))
            found = self.tested.predicted(thinned.flat)
        return {name: self._mixture(thinned.shape, site) for name, site in found.items()}

    def _mixture(self, shape: tuple[int, int], site: SampledSite) -> Mixture:
        means = np.asarray(site.parts.mean, np.float64)
        return Mixture(shape, means, *_moments(site), self._outcomes(site, 2 * DRAWS))

    def _outcomes(self, site: PredictedSite, count: int) -> np.ndarray | None:
        """Draws of what is observed; None where the mean is of classes."""
        draws = self.sample(site, count)
        return draws if draws.shape[1:] == tuple(site.mean.shape) else None


def _moments(site: PredictedSite) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(site.mean, np.float64), np.asarray(site.variance, np.float64)
