"""Weights of the sites in a step, for all rows and for a KL that warms up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moment_inference.optimisation.outcome import Fit

Plates = Sequence[tuple[str, int]]  # pairs of name and size


def priors_from_fit(sites: Mapping[str, Any], fit: Fit) -> dict[str, Any]:
    """Return an earlier fit's posteriors of latent sites outside data's plates."""
    if reason := getattr(fit.guide, "why_no_prior", ""):
        raise ValueError(
            f"a {type(fit.guide).__name__} {reason}, which prior=... takes for the prior of new "
            "data: fit the earlier data with a DVIGuide"
        )
    known = hasattr(fit.guide, "get_posterior")
    posteriors = fit.guide.get_posterior(fit.params) if known else None
    if not isinstance(posteriors, Mapping):
        raise ValueError(
            f"a {type(fit.guide).__name__} does not give its posterior as distributions by site, "
            "which prior=... takes: fit the earlier data with a DVIGuide"
        )
    # Sites inside a plate of observations belong to its rows, and new data have other
    # rows.
    rows = {plate for site in sites.values() if site["is_observed"] for plate in _plates(site)}
    return {
        name: posterior
        for name, posterior in posteriors.items()
        if name in sites and not rows & _plates(sites[name])
    }


def _plates(site: Any) -> set[str]:
    return {frame.name for frame in site["cond_indep_stack"]}


def weight_site(
    site: Any,
    plates: PlateScaling | None,  # None: all data at once
    batch: int | None,  # rows of the mini-batch
    kl_weight: Any,  # of the KL divergence; None: its full weight
    enlarged: Callable[[Any, Any], Any],  # a plate as a subsample
) -> None:
    """Weight a latent site by the KL divergence's weight, an observed one by all rows."""
    around = [(frame.name, frame.size) for frame in site["cond_indep_stack"]]
    if not site["is_observed"]:
        if plates is not None:
            plates.latent(site["name"], around)
        if kl_weight is not None:
            scale_by(site, kl_weight)
    elif plates is not None:
        name = plates.plate_to_scale(site["name"], site["scale"], around, batch)
        stack = site["cond_indep_stack"]
        for frame in stack:
            if frame.name == name:
                frames = (enlarged(part, plates.rows) if part is frame else part for part in stack)
                site["cond_indep_stack"] = type(stack)(frames)
                scale_by(site, plates.rows / frame.size)


def scale_by(site: Any, factor: Any) -> None:
    """Multiply the scale of a site, which may be None for one."""
    site["scale"] = factor if site["scale"] is None else site["scale"] * factor


class PlateScaling:
    """Find the plate whose elements are the rows of a mini-batch, to scale it up to all rows.

    A model that scales itself, by a subsampling plate or by a handler, is left as it is.
    """

    def __init__(self, rows: int | None, plate: str | None = None) -> None:
        # ``rows`` of all data may be unknown; by default the plate is the one of the
        # batch's size.
        self.rows, self.plate = rows, plate
        self._latent: dict[str, str] = {}  # by plate: a latent site inside it
        self._observes = False

    def latent(self, name: str, plates: Plates) -> None:
        """Note a latent site and the plates around it."""
        self._latent |= {plate: name for plate, _ in plates}

    def plate_to_scale(
        self, name: str, scale: Any, plates: Plates, batch: int | None
    ) -> str | None:
        """Return the plate by which an observed site is scaled; None for none."""
        self._observes = True
        if self._scales_itself(name, scale, batch) or (self.rows == batch and self.rows):
            return None
        around = [(plate, size) for plate, size in plates if self._is_of_rows(plate, size, batch)]
        if len(around) != 1:
            raise self._unclear(name, plates, batch)
        plate, size = around[0]
        if self.rows is None:
            raise ValueError(
                f"site '{name}' is in the plate '{plate}' of the mini-batch's {size} rows, and "
                "those of all data are not known: pass rows=... to fit, or subsample the plate "
                f"in the model: plate('{plate}', rows, subsample_size={size})"
            )
        if plate in self._latent:
            raise ValueError(
                f"the latent site '{self._latent[plate]}' is in the plate '{plate}' of the "
                "mini-batch's rows, so that its posterior would be that of other rows in every "
                f"step: subsample the plate in the model, plate('{plate}', {self.rows}, "
                f"subsample_size={size}), with create_plates in the guide"
            )
        return plate

    def check_observed(self) -> None:
        """Raise ValueError if the model observed nothing of a mini-batch."""
        if not self._observes:
            raise ValueError(
                "the model observes nothing of the mini-batch: pass the observations as well"
            )

    def _is_of_rows(self, plate: str, size: int, batch: int | None) -> bool:
        return plate == self.plate if self.plate is not None else size == batch

    def _scales_itself(self, name: str, scale: Any, batch: int | None) -> bool:
        """Return whether a site already has the scale of its mini-batch."""
        if scale is None or (isinstance(scale, int | float) and scale == 1):
            return False
        if not isinstance(scale, int | float) or self.rows is None or not batch:
            return True
        if not math.isclose(scale, self.rows / batch, rel_tol=1e-5):
            raise ValueError(
                f"site '{name}' is scaled by {scale:g}, which is neither 1 nor the "
                f"{self.rows / batch:g} of {batch} of {self.rows} rows: scale it by their product "
                "as an array, or subsample its plate and leave the scale out"
            )
        return True

    def _unclear(self, name: str, plates: Plates, batch: int | None) -> ValueError:
        names = ", ".join(f"'{plate}' ({size})" for plate, size in plates) or "none"
        return ValueError(
            f"the mini-batch has {batch} rows, and it is not clear which plate around site "
            f"'{name}' is theirs (there: {names}): put the rows into a plate of their own and "
            "name it, fit(..., plate='data'), or scale the site in the model"
        )


@dataclass(frozen=True)
class WarmUp:
    """A weight that is zero for ``wait`` steps, and rises to one in ``rise``."""

    wait: int
    rise: int

    def __post_init__(self) -> None:
        if self.wait < 0 or self.rise < 0:
            raise ValueError(f"kl_warm_up takes numbers of steps, got {self.wait}, {self.rise}")

    def weight(self, step: int) -> float:
        """Return the weight in a step, the first being 0."""
        if step < self.wait:
            return 0.0
        return min(1.0, (step - self.wait + 1) / max(self.rise, 1))


def parse_warm_up(argument: int | tuple[int, int] | None) -> WarmUp | None:
    """Return the user's warm-up: steps to rise, or to wait and to rise."""
    if argument is None:
        return None
    return WarmUp(*argument) if isinstance(argument, tuple) else WarmUp(0, argument)
