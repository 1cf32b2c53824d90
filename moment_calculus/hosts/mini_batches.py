"""How much a mini-batch counts: as many rows as the data has, unless the model says so itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moment_calculus.optimisation.outcome import Fit

Plates = Sequence[tuple[str, int]]  # names and sizes


def streamed_priors(sites: Mapping[str, Any], fit: Fit) -> dict[str, Any]:
    """The posterior of an earlier fit, of the latent sites that are in no plate with observations.

    Those inside are of the rows, and other data have other rows.

    Args:
        sites: of the model, as the host's traces have them, by name.
        fit: the fit.

    Raises:
        ValueError: if it does not give its posterior.
    """
    if not hasattr(fit.guide, "get_posterior"):
        raise ValueError(
            f"a {type(fit.guide).__name__} does not give its posterior as distributions by site, "
            "which prior=... takes: fit the earlier data with a DVIGuide"
        )
    if reason := getattr(fit.guide, "no_prior", ""):
        raise ValueError(
            f"a {type(fit.guide).__name__} {reason}, which prior=... takes for the prior of new "
            "data: fit the earlier data with a DVIGuide"
        )
    rows = {plate for site in sites.values() if site["is_observed"] for plate in _plates(site)}
    return {
        name: posterior
        for name, posterior in fit.guide.get_posterior(fit.params).items()
        if name in sites and not rows & _plates(sites[name])
    }


def _plates(site: Any) -> set[str]:
    return {frame.name for frame in site["cond_indep_stack"]}


def subsampled(
    stack: Sequence[Any], plate: str, rows: int, part: Callable[[Any], Any]
) -> tuple[list[Any], float]:
    """The frames around a site with a plate as the subsample of a larger one; the factor to it.

    Args:
        stack: frames of the host around the site.
        plate: name of the plate.
        rows: full size of the plate.
        part: makes the frame that knows the full size, of the plate's.
    """
    (frame,) = (frame for frame in stack if frame.name == plate)
    frames = [part(frame) if other is frame else other for other in stack]
    return frames, rows / frame.size


class PlateScaling:
    """Scales the plate whose elements are the rows of a mini-batch up to all rows.

    A model that scales itself, by a plate with a subsample or by a handler, is left as it is.

    Args:
        rows: of all data; None if that is not known.
        plate: name of the plate of the rows; by default the one around what is observed that has
            as many elements as the mini-batch has rows.
    """

    def __init__(self, rows: int | None, plate: str | None = None) -> None:
        self.rows, self.plate = rows, plate
        self._latent: dict[str, str] = {}  # a latent site by plate
        self._observes = False

    def latent(self, name: str, plates: Plates) -> None:
        """Note a latent site.

        Args:
            name: of the site.
            plates: around it.
        """
        self._latent |= {plate: name for plate, _ in plates}

    def part(self, name: str, scale: Any, plates: Plates, batch: int | None) -> str | None:
        """The plate around an observed site that is a part of that of all rows.

        Args:
            name: of the site.
            scale: that it has; None for one.
            plates: around it.
            batch: rows of the mini-batch; None if there is no array in it.

        Returns:
            The plate's name; None if the site is not to be scaled.

        Raises:
            ValueError: if it is not clear how the site is to be scaled; the message names the
                site, its plates, and the remedy.
        """
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
        """Refuse a model that observed nothing of a mini-batch.

        Raises:
            ValueError: saying so.
        """
        if not self._observes:
            raise ValueError(
                "the model observes nothing of the mini-batch: pass the observations as well"
            )

    def _is_of_rows(self, plate: str, size: int, batch: int | None) -> bool:
        return plate == self.plate if self.plate is not None else size == batch

    def _scales_itself(self, name: str, scale: Any, batch: int | None) -> bool:
        """Whether a scale is that of a mini-batch."""
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
        found = ", ".join(f"'{plate}' ({size})" for plate, size in plates) or "none"
        return ValueError(
            f"the mini-batch has {batch} rows, and it is not clear which plate around site "
            f"'{name}' is theirs (there: {found}): put the rows into a plate of their own and "
            "name it, fit(..., plate='data'), or scale the site in the model"
        )
