"""Weight the sites in one step: rows of a mini-batch, and a KL divergence that warms up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpyro.primitives import Messenger

from moment_calculus.optimisation.weighting import PlateScaling, enlarge_plate
from numpyro_moments.sites.traces import Part


class Weighting(Messenger):
    """Handler that scales a mini-batch up to all rows, and weights the latent sites."""

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
            plate = self.plates.plate_to_scale(msg["name"], msg["scale"], plates, self.batch)
            if plate is not None:
                scale_plate(msg, plate, self.plates.rows)


def scale_plate(msg: Any, plate: str, rows: Any) -> None:
    """Let a plate around a site be a subsample of one with ``rows`` elements."""

    def part(frame: Any) -> Part:
        return Part(frame.name, frame.dim, frame.size, rows)

    msg["cond_indep_stack"], factor = enlarge_plate(msg["cond_indep_stack"], plate, rows, part)
    scale_by(msg, factor)


def scale_by(msg: Any, factor: Any) -> None:
    """Multiply the scale of a site, which may be None for one."""
    msg["scale"] = factor if msg["scale"] is None else msg["scale"] * factor
