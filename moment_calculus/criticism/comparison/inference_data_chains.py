"""Use the chains in an ``InferenceData`` as the reference of a comparison."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from moment_calculus.criticism.containers.draws import Draws, FromPosterior

DIVERGING = "diverging"


@dataclass(frozen=True)
class InferenceDataChains:
    """Finished chains in the group ``posterior`` of an ``InferenceData``."""

    chains: Any
    sites: Collection[str]  # names of the latent sites
    is_finished: bool = True

    def run(self) -> Draws:
        """Return the draws; raise ValueError if a latent site is missing."""
        posterior = self.chains.posterior
        if missing := [name for name in self.sites if name not in posterior]:
            raise ValueError(
                f"reference has no draws of {', '.join(map(repr, missing))}; its posterior has "
                f"{', '.join(map(repr, posterior.data_vars))}"
            )
        axes = ("chain", "draw", ...)
        values = {name: posterior[name].transpose(*axes).values for name in self.sites}
        statistics_group = getattr(self.chains, "sample_stats", {})
        statistics = (
            {DIVERGING: statistics_group[DIVERGING].values} if DIVERGING in statistics_group else {}
        )
        return Draws(posterior.attrs.get("source", "NUTS"), values, FromPosterior(), statistics)
