"""Weights of the sites in one step: rows of a mini-batch, and a KL divergence that warms up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpyro.primitives import Messenger

from moment_calculus.hosts.mini_batches import PlateScaling, subsampled
from numpyro_moments.sites.plates import Part


class Weighting(Messenger):
    """Scales what is observed in a mini-batch up to all rows, and latent sites by a weight.

    Args:
        fn: model or guide.
        plates: how observed sites are scaled; None for not at all.
        batch: rows of the mini-batch.
        kl_weight: of the latent sites; None for one.
    """

    def __init__(
        self, fn: Callable, plates: PlateScaling | None, batch: int | None, kl_weight: Any
    ) -> None:
        super().__init__(fn)
        self.plates, self.batch, self.kl_weight = plates, batch, kl_weight

    def process_message(self, msg: Any) -> None:
        """Scale a site."""
        if msg["type"] != "sample":
            return
        plates = [(frame.name, frame.size) for frame in msg["cond_indep_stack"]]
        if not msg["is_observed"]:
            if self.plates is not None:
                self.plates.latent(msg["name"], plates)
            if self.kl_weight is not None:
                scale_by(msg, self.kl_weight)
        elif self.plates is not None:
            plate = self.plates.part(msg["name"], msg["scale"], plates, self.batch)
            if plate is not None:
                scale_plate(msg, plate, self.plates.rows)


def scale_plate(msg: Any, plate: str, rows: Any) -> None:
    """Let a plate around a site be a subsample of a larger one.

    Args:
        msg: of the site, on its way.
        plate: name of the plate.
        rows: full size of the plate.
    """

    def part(frame: Any) -> Part:
        return Part(frame.name, frame.dim, frame.size, rows)

    msg["cond_indep_stack"], factor = subsampled(msg["cond_indep_stack"], plate, rows, part)
    scale_by(msg, factor)


def scale_by(msg: Any, factor: Any) -> None:
    """Multiply the scale of a site, which may be None for one.

    Args:
        msg: of the site, on its way.
        factor: number or array.
    """
    msg["scale"] = factor if msg["scale"] is None else msg["scale"] * factor
