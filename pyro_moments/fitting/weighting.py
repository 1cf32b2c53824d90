"""Weight the sites in one step: rows of a mini-batch, and a KL divergence that warms up."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus.optimisation.weighting import PlateScaling, enlarge_plate


class Weighting(Messenger):
    """Handler that scales a mini-batch up to all rows, and weights the latent sites."""

    def __init__(self, plates: PlateScaling | None, kl_weight: torch.Tensor | None) -> None:
        super().__init__()
        self.plates, self.kl_weight = plates, kl_weight
        self.batch: int | None = None  # rows of the mini-batch

    def _pyro_sample(self, msg: Any) -> None:
        if site_is_subsample(msg) or (msg["infer"] or {}).get("_deterministic"):
            return
        plates = [(frame.name, frame.size) for frame in msg["cond_indep_stack"]]
        if not msg["is_observed"]:
            if self.plates is not None:
                self.plates.latent(msg["name"], plates)
            if self.kl_weight is not None:
                msg["scale"] = msg["scale"] * self.kl_weight
        elif self.plates is not None:
            plate = self.plates.plate_to_scale(msg["name"], msg["scale"], plates, self.batch)
            if plate is not None:
                scale_plate(msg, plate, self.plates.rows)


def scale_plate(msg: Any, plate: str, rows: Any) -> None:
    """Let a plate around a site be a subsample of one with ``rows`` elements."""
    part = methodcaller("_replace", full_size=rows)
    frames, factor = enlarge_plate(msg["cond_indep_stack"], plate, rows, part)
    msg["scale"], msg["cond_indep_stack"] = msg["scale"] * factor, tuple(frames)
