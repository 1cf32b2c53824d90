"""The protocol of a framework's model with its data, for MCMC and predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from moment_calculus.criticism.containers.draws import Arrays
from moment_calculus.criticism.containers.groups import HostModel
from moment_calculus.hosts.predictions.sampled import SampledSite


class RunnableModel(HostModel, Protocol):
    """A model of one framework with its data, which MCMC and predictions can run."""

    @property
    def improper(self) -> list[str]:
        """Names of latent sites whose prior is improper."""

    @property
    def masked(self) -> Mapping[str, int]:
        """Number of masked elements by observed site, for the sites that have any."""

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Transform draws to the unconstrained space.

        Args:
            values: by latent site, on the supports.
        """

    def predicted(self, values: Arrays) -> Mapping[str, SampledSite]:
        """Return the mixture of the predictions of all draws, by observed site.

        Args:
            values: by latent site, [draws, ...].
        """
