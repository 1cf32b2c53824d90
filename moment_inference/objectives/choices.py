"""Options that objectives of both frameworks have in common, their checks and messages."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Collection, Mapping
from numbers import Real
from typing import Any

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.predictions.site import checked_count
from moment_calculus.values.propagation import (
    CATEGORICAL_METHODS,
    Propagation,
    RuleBook,
    check_choice,
    check_draws,
)
from moment_inference.objectives.data_plates import DataPlateFinder
from moment_inference.objectives.held_draws import normal_points, number_of_draws
from moment_inference.objectives.remembered import KeepsOptions

PROPAGATIONS = ("analytic", "sampled", "mean")
LIFTING = ("covariance='diagonal'", "memory_limit=")  # options that lift a refusal in closed form
ENERGIES = ("reparameterised", "cavity")
_OF_MOMENTS = ("covariance", "rules", "categorical", "categorical_draws", "memory_limit")


class Expectations(KeepsOptions):
    """What objectives answer about their expectations over latent sites."""

    alpha = 0.0  # of the α energy that this objective is; zero is the ELBO
    propagation_kind: str  # one of PROPAGATIONS
    propagation: Propagation
    sample_sites: frozenset[str]
    num_particles: int
    held_draws: int = 0  # for terms without a moment rule; zero: they are refused
    held_set = 0  # which of several independent sets of held draws
    held_sites: dict[str, Any] | None = None  # notes the names of sites with such terms
    given_noise: Any = None  # in place of the held draws

    def held_noise(self, coordinates: int, is_joint: bool) -> Any:
        """Return the held draws, [draws, coordinates].

        Args:
            coordinates: of all latent sites.
            is_joint: whether the guide has covariances between them.
        """
        if self.given_noise is not None:
            return self.given_noise
        count = number_of_draws(self.held_draws, coordinates, is_joint)
        return normal_points(count, coordinates, self.held_set)

    def with_held(self, **settings: Any) -> Any:
        """Return the same objective with other held draws."""
        changed = copy.copy(self)
        vars(changed).update(settings)
        if "held_draws" in settings:
            changed.made_with = {**self.made_with, "held_draws": settings["held_draws"]}
        return changed

    def with_remedy(
        self, refusal: UnsupportedMoments, attempt: Callable[[Any], Any]
    ) -> UnsupportedMoments:
        """Return a refusal that names held draws first, if the program runs with them.

        One that another option of the closed form lifts stays as it is.

        Args:
            refusal: of this objective.
            attempt: evaluates the program by another.
        """
        has_option = any(option in refusal.remedy for option in LIFTING)
        if self.held_draws or has_option or not self.in_closed_form:
            return refusal
        try:
            attempt(self.with_held(held_draws=2))
        except Exception:
            return refusal
        return refusal.with_remedy(errors.HOLD_DRAWS + refusal.remedy)

    @property
    def draws(self) -> bool:
        """Return whether anything is drawn besides subsamples."""
        by_logits = self.propagation.categorical == "sample"
        return self.propagation_kind == "sampled" or bool(self.sample_sites) or by_logits

    @property
    def in_closed_form(self) -> bool:
        """Return whether expectations are computed from moments alone."""
        return self.propagation_kind == "analytic" and not self.draws

    def by_draws(self, count: int, sites: Collection[str] = ()) -> Any:
        """Return the same objective with latent sites that are drawn.

        Args:
            count: number of particles.
            sites: those that are drawn, with exact moments of the others; by default all
                sites are drawn.
        """
        drawn = copy.copy(self)
        drawn.num_particles, drawn.held_draws = count, 0
        if sites:
            drawn.sample_sites = frozenset(sites)
            drawn.propagation = Propagation(
                categorical="sample", memory_limit=self.propagation.memory_limit
            )
        else:
            drawn.propagation_kind = "sampled"
        return drawn


class AlphaEnergy(Expectations):
    """The options of a BB-α energy, before the base class of objectives of a framework."""

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        datum: str | None = None,
        energy: str = "reparameterised",
        num_particles: int = 1,
        **options: Any,
    ) -> None:
        alpha = check_alpha(alpha, type(self).__name__)
        if options.get("held_draws"):
            raise ValueError(f"held draws go with DeterministicELBO, not {type(self).__name__}")
        check_energy(energy, options.get("propagation", "analytic"), options)
        super().__init__(num_particles=num_particles, **options)  # type: ignore[call-arg]
        check_terms(self.propagation.rulebook, taken=False)
        warn_one_particle(alpha, num_particles, self.propagation_kind, energy)
        self.alpha, self.data, self.energy = alpha, DataPlateFinder(datum), energy
        self.num_particles = num_particles if self.draws else 1  # all particles would be the same


class RenyiBound(KeepsOptions):
    """The options of a Rényi bound, before the base class of losses of a framework."""

    def __init__(
        self,
        alpha: float = 0.0,
        *,
        num_particles: int = 2,
        propagation: str = "sampled",
        **options: Any,
    ) -> None:
        self.alpha = check_order(alpha)
        check_sampled(propagation, type(self).__name__)
        check_draws((), num_particles)
        warn_one_particle_renyi(self.alpha, num_particles)
        super().__init__(num_particles=num_particles, **options)  # type: ignore[call-arg]


def check_alpha(alpha: Any, objective: str) -> float:
    """Return the power of a BB-α energy; raise if it is not between 0 and 1."""
    alpha = _number(alpha, objective)
    if not 0 <= alpha <= 1:
        raise ValueError(
            f"{objective}(alpha={alpha}): the energy is defined here for 0 <= alpha <= 1, from the "
            "ELBO (0) to the log predictive likelihood of the data (1); RenyiELBO has another "
            "order, in which alpha -> 1 is the ELBO"
        )
    return alpha


def check_order(alpha: Any) -> float:
    """Return the order of a Rényi bound; raise if negative, infinite or 1."""
    alpha = _number(alpha, "RenyiELBO")
    if alpha == 1:
        raise ValueError(
            "RenyiELBO(alpha=1) is the ELBO: use DeterministicELBO; BBAlphaELBO, whose ELBO is "
            "alpha=0, has alpha=1 for the log predictive likelihood"
        )
    if not 0 <= alpha < math.inf:
        raise ValueError(
            f"RenyiELBO(alpha={alpha}): a lower bound of the log evidence needs alpha >= 0"
        )
    return alpha


def _number(alpha: Any, objective: str) -> float:
    shape = getattr(alpha, "shape", None)
    if isinstance(alpha, Real) or (shape is not None and math.prod(shape) == 1):
        return float(alpha if shape is None else alpha.item())
    kind = type(alpha).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
    raise TypeError(f"{objective}(alpha={alpha!r}): alpha is one number, not a {kind}")


def check_sampled(propagation: str, objective: str) -> None:
    """Raise ValueError unless ``propagation`` is "sampled"."""
    check_choice("propagation", propagation, PROPAGATIONS)
    if propagation != "sampled":
        raise ValueError(
            f"{objective}(propagation={propagation!r}): the ratio of densities at its draws has no "
            "closed form; leave propagation out, or use BBAlphaELBO"
        )


def check_energy(energy: str, propagation: str, options: Collection[str]) -> None:
    """Raise ValueError for an unknown energy, or options without meaning for it."""
    check_choice("energy", energy, ENERGIES)
    if energy != "cavity":
        return
    check_choice("propagation", propagation, PROPAGATIONS)
    if propagation != "sampled":
        raise ValueError(
            f"BBAlphaELBO(energy='cavity', propagation={propagation!r}): the ratio of densities "
            "p(θ) / q(θ) is taken at draws of the weights, and has no closed form; pass "
            "propagation='sampled' and num_particles >= 2, or leave energy out"
        )
    if named := [name for name in _OF_MOMENTS if name in options]:
        raise ValueError(
            f"BBAlphaELBO(energy='cavity') takes log-densities at draws, without moments: "
            f"{', '.join(named)} would have no effect; leave out what moments need, or energy"
        )


def warn_one_particle(alpha: float, num_particles: int, propagation: str, energy: str) -> None:
    """Warn of a sampled power mean of one particle, which is that particle."""
    if propagation == "sampled" and num_particles < 2 and alpha:
        instead = ', or propagation="analytic"' if energy == "reparameterised" else ""
        warnings.warn(
            f"BBAlphaELBO(alpha={alpha}, num_particles={num_particles}) is variational inference, "
            "whatever alpha: the mean over one particle is that particle; use num_particles >= 2"
            f"{instead}",
            UserWarning,
            stacklevel=3,
        )


def warn_one_particle_renyi(alpha: float, num_particles: int) -> None:
    """Warn of a Rényi bound of one particle, whose mean is that particle."""
    if num_particles < 2:
        warnings.warn(
            f"RenyiELBO(alpha={alpha}, num_particles={num_particles}) is the ELBO's estimator, "
            "whatever alpha: the mean over one particle is that particle; use num_particles >= 2",
            UserWarning,
            stacklevel=3,
        )


def check_propagation(propagation: str, sample_sites: object, num_particles: int) -> None:
    """Raise ValueError if the propagation is unknown, or other options contradict it."""
    check_choice("propagation", propagation, PROPAGATIONS)
    if propagation != "analytic" and sample_sites:
        raise ValueError(
            f"sample_sites are drawn under propagation='analytic'; with {propagation!r} every "
            "latent site is treated alike"
        )
    if propagation == "mean" and num_particles != 1:
        raise ValueError(f"propagation='mean' draws nothing: num_particles={num_particles} is 1")


def check_terms(book: RuleBook, taken: bool) -> None:
    """Raise ValueError if a rule book adds terms to the loss, and the objective takes none."""
    if book.has_terms and not taken:
        raise ValueError(
            f"the rule book {book.name!r} adds terms to the ELBO: DeterministicELBO takes them, "
            "with propagation='analytic'"
        )


def check_trainable(categorical: str | None) -> None:
    """Raise ValueError for a rule for classes that no objective takes."""
    if categorical is not None:
        check_choice("categorical", categorical, CATEGORICAL_METHODS)


def check_compiled(compiled: bool, propagation: str) -> None:
    """Raise ValueError if a loss is to be compiled without analytic propagation."""
    if compiled and propagation != "analytic":
        raise ValueError(f"compiled=True needs propagation='analytic', not {propagation!r}")


def check_held(
    held_draws: Any, propagation: str, sample_sites: Collection[str], compiled: bool = False
) -> None:
    """Raise ValueError for a number of held draws that is none, or beside other draws."""
    if not isinstance(held_draws, int) or held_draws < 0:
        raise ValueError(f"held_draws is a number of draws, or 0 for none, not {held_draws!r}")
    if held_draws and (propagation != "analytic" or sample_sites or compiled):
        raise ValueError(
            "held draws stand for what has no closed form in an analytic, eager loss: leave out "
            "propagation, sample_sites and compiled"
        )


def check_particles(propagation: str, num_particles: int) -> None:
    """Raise ValueError for an unknown propagation, or no draws."""
    check_choice("propagation", propagation, PROPAGATIONS)
    if num_particles < 1:
        raise ValueError(f"num_particles={num_particles} must be at least 1")


def check_draws_of_inputs(propagation: str, num_particles: int) -> None:
    """Raise ValueError for an unknown propagation, or too few draws."""
    check_choice("propagation", propagation, PROPAGATIONS)
    if propagation == "sampled" and num_particles < 2:
        raise ValueError(f"num_particles={num_particles}: a variance needs two draws at least")


NESTED_DRAWS = 1000  # of what ``nested`` returned, of which predictions are mixtures


def draws_of_nested(num_particles: int | None, options: Mapping[str, Any]) -> int:
    """Return the number of draws of predictions; raise ValueError for options of guides."""
    given = [f"{name}=" for name, value in options.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)}: predictions of what nested returned are mixtures over draws, "
            "which take num_particles= alone"
        )
    return checked_count(NESTED_DRAWS if num_particles is None else num_particles, "num_particles")
