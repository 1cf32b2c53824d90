"""Which latent sites are hyperparameters, and which observed sites are likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from moment_calculus import UnsupportedMoments
from moment_inference.nested.given.host import ConditionalModel
from moment_inference.nested.given.refusals import FIT, no_number, too_many
from moment_inference.nested.marginals import Transform

MOST = 5  # elements of hyperparameters
STEP = 0.5  # of differences, on the unconstrained space
ROUNDING = 1e-9  # of differences, relative to the densities


@dataclass(frozen=True)
class Latent:
    """A latent site."""

    shape: tuple[int, ...]  # on its support
    size: int  # number of elements on the unconstrained space
    is_real: bool  # whether it is a linear function of any real numbers


class NestedHost(Protocol):
    """A model with its arguments in a framework."""

    @property
    def latent(self) -> Mapping[str, Latent]:
        """The latent sites."""

    def transform(self, name: str) -> Transform | None:
        """The function from the unconstrained space to a site's support; None if it mixes elements.

        Args:
            name: of the site.
        """

    def unconstrained(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The unconstrained point of sites on their supports, one after another."""

    def values(self, names: Sequence[str], points: np.ndarray) -> dict[str, np.ndarray]:
        """Sites on their supports, [count, ...], of unconstrained points [count, size of all]."""

    def given(
        self, hyperparameters: Sequence[str], field: Sequence[str], likelihoods: Sequence[str]
    ) -> ConditionalModel:
        """The model given hyperparameters, with these observed sites as likelihoods."""


@dataclass(frozen=True)
class Selection:
    """What the sites of a model are to nested inference."""

    hyperparameters: tuple[str, ...]
    field: tuple[str, ...]
    likelihoods: tuple[str, ...]  # observed sites that are not quadratic in the field


def select(host: NestedHost, over: Collection[str] | None) -> Selection:
    """Return hyperparameters, field and likelihoods; raise where the model has no such parts.

    By default hyperparameters are the sites that are no real numbers, and the real numbers on
    which precisions or slopes of others depend.
    """
    names = _real_and_others(host, over)
    trial = _Trial(host, *names)
    chosen = trial.chosen() if over is None else tuple(over)
    _check_size(host, chosen)
    field = tuple(name for name in host.latent if name not in chosen)
    return trial.checked(chosen, field)


def _real_and_others(
    host: NestedHost, over: Collection[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    unknown = [name for name in over or () if name not in host.latent]
    if unknown:
        raise ValueError(
            f"over={list(over or ())!r}: {', '.join(map(repr, unknown))} is no latent site of the "
            f"model, which has {', '.join(map(repr, host.latent))}"
        )
    others = tuple(name for name, site in host.latent.items() if not site.is_real)
    missing = [name for name in others if over is not None and name not in over]
    if missing:
        raise UnsupportedMoments(
            f"site '{missing[0]}' is no real number, and so no part of a Gaussian field",
            sites=missing,
            remedy=f"name it in over= as well, or use {FIT}",
        )
    return tuple(name for name, site in host.latent.items() if site.is_real), others


def _check_size(host: NestedHost, chosen: Sequence[str]) -> None:
    size = sum(host.latent[name].size for name in chosen)
    if size > MOST:
        raise too_many(size, MOST, [(name, host.latent[name].size) for name in chosen])


class _Trial:
    """The model with all real sites as its field, to see what depends on what."""

    def __init__(self, host: NestedHost, real: Sequence[str], others: Sequence[str]) -> None:
        self.host, self.real, self.others = host, tuple(real), tuple(others)
        self.model = host.given(self.others, self.real, ())
        self.parts = slices_of({name: host.latent[name].size for name in self.real})
        generator = np.random.default_rng(0)
        self.centre = 0.3 * generator.normal(size=self.model.size)
        self.direction = generator.normal(size=self.model.size)
        self.theta = np.zeros((1, sum(host.latent[name].size for name in self.others)))

    def not_quadratic(self, fixed: Collection[str] = ()) -> set[str]:
        """Return the sites whose log density is not quadratic in the sites that are not fixed."""
        direction = self.direction.copy()
        for name in fixed:
            direction[self.parts[name]] = 0
        steps = STEP * np.arange(-2, 3)[:, None]
        points = self.centre + steps * direction
        densities = self.model.densities(np.repeat(self.theta, 5, 0), points)
        for name, values in densities.items():
            if np.isnan(values).all():
                raise no_number(name)
        return {name for name, values in densities.items() if _is_bent(values)}

    def chosen(self) -> tuple[str, ...]:
        """Return the hyperparameters by default.

        They are the sites that are no real numbers, the real numbers without which, if fixed, more
        densities are not quadratic, and those on which the slopes of predictors depend. Observed
        sites with one predictor may have any density.
        """
        bent = sorted(self.not_quadratic() - self.host.latent.keys())
        bending, free = [], set[str]()
        if bent and (found := self._bending(bent)) is not None:
            bending, free = found, {*bent}
        elif bent:
            each = {name: self._bending([name]) for name in bent}
            free = {name for name, found in each.items() if found is not None}
            bending = [
                n for n in self._numbers() if any(n in (found or ()) for found in each.values())
            ]
        kept = self._that_change_densities(free)
        rest = [name for name in bending if name not in kept]
        left = sorted(self.not_quadratic(kept) - free - self.host.latent.keys())
        return (*self.others, *kept, *rest, *self._that_part_predictors(left, [*kept, *rest]))

    def _that_change_densities(self, free: set[str]) -> list[str]:
        """Return the numbers without which, if fixed, more densities are not quadratic."""
        return self._needed(self._numbers(), lambda fixed: self.not_quadratic(fixed) - {*free})

    def _that_part_predictors(self, likelihoods: Sequence[str], fixed: Sequence[str]) -> list[str]:
        """Return the further numbers that are fixed where each observation has one predictor."""
        if not likelihoods or self._bending(likelihoods, fixed) is not None:
            return []
        further = [name for name in self._numbers() if name not in fixed]
        self._model(likelihoods, [*fixed, *further]).predictors(*self._centre([*fixed, *further]))
        return self._needed(
            further, lambda some: self._bending(likelihoods, [*fixed, *some]) is not None
        )

    def _needed(self, names: list[str], tell: Callable[[list[str]], object]) -> list[str]:
        """Return the names that are left if those go that change nothing of what is told."""
        kept, wanted = names, tell(names)
        for name in reversed(names):
            others = [other for other in kept if other != name]
            if tell(others) == wanted:
                kept = others
        return kept

    def _numbers(self) -> list[str]:
        return [name for name in self.real if self.host.latent[name].size == 1]

    def _model(self, likelihoods: Sequence[str], fixed: Sequence[str]) -> ConditionalModel:
        free = [name for name in self.real if name not in fixed]
        return self.host.given((*self.others, *fixed), free, likelihoods)

    def _centre(self, fixed: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return a point, and values of the field where more sites are fixed."""
        at = [self.centre[self.parts[name]] for name in fixed]
        rest = [self.centre[self.parts[name]] for name in self.real if name not in fixed]
        theta = np.concatenate([self.theta[0], *at])
        return theta[None], np.concatenate([np.zeros(0), *rest])[None]

    def _bending(self, likelihoods: Sequence[str], fixed: Sequence[str] = ()) -> list[str] | None:
        """Return the numbers on which slopes of predictors depend; None if one has several."""
        model = self._model(likelihoods, fixed)
        try:
            model.predictors(*self._centre(fixed))
        except UnsupportedMoments:
            return None
        if fixed:
            return []
        return [name for name in self._numbers() if self._bends(model, name)]

    def _bends(self, model: ConditionalModel, name: str) -> bool:
        """Return whether predictors are not linear along a site and the others."""
        along = np.zeros_like(self.direction)
        along[self.parts[name]] = 1
        rest = np.where(along == 0, self.direction, 0)
        points = self.centre + np.stack([0 * rest, along, rest, along + rest, -along])
        at = model.predictors(np.repeat(self.theta, 5, 0), points)
        differences = np.stack([at[3] - at[2] - at[1] + at[0], at[1] - 2 * at[0] + at[4]])
        return bool((np.abs(differences) > 1e-7 * (1 + np.abs(at).max())).any())

    def checked(self, chosen: tuple[str, ...], field: tuple[str, ...]) -> Selection:
        """Return the selection; raise if latent sites are not Gaussian given the chosen ones."""
        fixed = [name for name in chosen if name in self.parts]
        bent = self.not_quadratic(fixed)
        for name in field:
            if name in bent:
                raise UnsupportedMoments(
                    f"given {', '.join(map(repr, chosen))}, site '{name}' is not Gaussian",
                    sites=[name],
                    remedy=f"name it in over= if it is one of a few numbers, or use {FIT}",
                )
        return Selection(chosen, field, tuple(sorted(bent - self.host.latent.keys())))


def slices_of(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Return where parts of some sizes are in a vector."""
    ends = np.cumsum([*sizes.values()], dtype=int).tolist()
    return {name: slice(end - sizes[name], end) for name, end in zip(sizes, ends, strict=True)}


def _is_bent(values: np.ndarray) -> bool:
    """Return whether values at five points in equal distances are not those of a parabola.

    Such as those of an exponential that overflows.
    """
    odd = values[4] - 2 * values[3] + 2 * values[1] - values[0]
    even = values[4] - 4 * values[3] + 6 * values[2] - 4 * values[1] + values[0]
    return not max(abs(odd), abs(even)) <= ROUNDING * (1 + np.abs(values).max())
