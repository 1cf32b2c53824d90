"""What became of a model: it works, works with sites drawn, is refused, or crashes."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from models_tried_sources import load

from moment_calculus.errors import UnsupportedMoments

STEPS, SAMPLES = 500, 2000
Sites = tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """A model of somebody else.

    Args:
        name: in the table.
        file: its source, below the folder of its host.
        definition: of the model in that file, as :func:`models_tried_sources.load` takes it.
        data: the arguments, from the folder of the sources.
        made_of: what the data are, if they are not those of the source.
        build: the model from its definition, where that is a class.
        guide: the source's own guide, if it is to be used; ``DVIGuide`` otherwise.
        given: values for names of the file, such as its data set.
        share: of the steps and of the draws, for one that is slow.
    """

    name: str
    file: str
    definition: str
    data: Callable[[Path], tuple[Any, ...]]
    made_of: str = ""
    build: Callable[[Any], Callable] = lambda model: model
    guide: str = ""
    given: dict[str, Any] = field(default_factory=dict)
    share: float = 1.0

    def loaded(self, folder: Path) -> tuple[Callable, Callable | None]:
        """The model, and its guide if it comes with one.

        Args:
            folder: of the sources of the host.
        """
        names = [self.definition, self.guide] if self.guide else [self.definition]
        model, *guide = load(folder / self.file, names, self.given)
        return self.build(model), guide[0] if guide else None


@dataclass(frozen=True)
class Mean:
    """The mean of draws and its standard error, nought where nothing is drawn."""

    value: float
    error: float = 0.0

    @classmethod
    def of(cls, draws: np.ndarray) -> Mean:
        """Of independent draws."""
        return cls(float(draws.mean()), float(draws.std()) / math.sqrt(len(draws)))

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}" if self.error else f"{self.value:.2f}"


@dataclass(frozen=True)
class Verdict:
    """What became of a model.

    Args:
        kind: ``works``, ``drawn``, ``refused`` or ``crashed``.
        reason: of a crash, of the refusal that is left, or of the first one where sites are drawn.
        sites: that are drawn.
        ours: the deterministic ELBO after training.
        sampled: the host's.
        warned: what the library said as it ran.
    """

    kind: str
    reason: str = ""
    sites: Sites = ()
    ours: Mean | None = None
    sampled: Mean | None = None
    warned: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """Ours minus the host's, in standard errors of the difference."""
        assert self.ours is not None
        assert self.sampled is not None
        apart = self.ours.value - self.sampled.value
        return apart / max(math.hypot(self.ours.error, self.sampled.error), 1e-12)


class Host(Protocol):
    """What a host does with a model, its guide or None, its arguments, and the sites drawn."""

    def evaluate(self, model: Callable, guide: Any, data: tuple, sites: Sites) -> None:
        """Evaluate the deterministic ELBO once."""

    def elbos(
        self, model: Callable, guide: Any, data: tuple, sites: Sites, share: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train, by a share of the steps and of the draws.

        Returns:
            Draws of the deterministic ELBO, one if no site is drawn, and of the host's.
        """


def verdict(
    host: Host, model: Callable, guide: Callable | None, data: tuple, share: float = 1.0
) -> Verdict:
    """Train a model, following what refusals say about sites to be drawn.

    Args:
        host: evaluates and trains.
        model: the model.
        guide: its own guide, or None.
        data: its arguments.
        share: of the steps and of the draws, for a model that is slow.
    """

    def refusal(sites: Sites) -> UnsupportedMoments | None:
        try:
            host.evaluate(model, guide, data, sites)
        except UnsupportedMoments as found:
            return found
        return None

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            accepted = _accepted(refusal)
            if accepted.kind == "refused":
                return accepted
            ours, sampled = host.elbos(model, guide, data, accepted.sites, share)
    except Exception as error:
        return Verdict("crashed", f"{type(error).__name__}: {error}".splitlines()[0])
    return replace(accepted, ours=Mean.of(ours), sampled=Mean.of(sampled), warned=_said(caught))


def _accepted(refusal: Callable[[Sites], UnsupportedMoments | None]) -> Verdict:
    """Whether a model runs, and the sites that have to be drawn for it."""
    first = last = refusal(())
    sites: Sites = ()
    while last:
        new = sorted(set(last.sites) - set(sites))
        if not new:
            return Verdict("refused", sentence(last), sites)
        sites = (*sites, *new)
        last = refusal(sites)
    if first is None:
        return Verdict("works")
    for site in sites:  # a refusal names all that a value depends on: fewer may do
        fewer = tuple(other for other in sites if other != site)
        sites = fewer if fewer and refusal(fewer) is None else sites
    return Verdict("drawn", sentence(first), sites)


def sentence(refusal: UnsupportedMoments) -> str:
    """The first sentence of a refusal, with the operation."""
    return re.split(r"(?<=[.;]) |\n", str(refusal))[0].rstrip(";")


def _said(caught: list[warnings.WarningMessage]) -> tuple[str, ...]:
    """The warnings of the library itself, once each."""
    ours = [one for one in caught if one.category.__module__.startswith("moment_calculus")]
    return tuple(dict.fromkeys(str(one.message).splitlines()[0] for one in ours))
