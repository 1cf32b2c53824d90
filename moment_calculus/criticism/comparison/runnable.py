"""A model of a host with its data, of which chains can be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from moment_calculus.criticism.containers.draws import Arrays
from moment_calculus.criticism.containers.groups import HostModel
from moment_calculus.hosts.predictions.sampled import SampledSite


class RunnableModel(HostModel, Protocol):
    """A model of a host with its data, of which chains can be run."""

    @property
    def improper(self) -> list[str]:
        """Names of latent sites whose prior is improper."""

    @property
    def masked(self) -> Mapping[str, int]:
        """How many elements of observed sites a mask hides, where there are such, by site."""

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Draws on the unconstrained space.

        Args:
            values: by site, on the supports.
        """

    def predicted(self, values: Arrays) -> Mapping[str, SampledSite]:
        """What draws of its latent sites predict together, by site.

        Args:
            values: by site, [draws, ...].
        """
