"""Checks that a guide has a density, for objectives and comparisons by log densities."""

from __future__ import annotations

from typing import Any

import numpyro.distributions as dist
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger

from moment_calculus import errors
from moment_guides.families import no_density
from numpyro_moments.objectives.base import Program
from numpyro_moments.sites.messenger import model_site
from numpyro_moments.sites.terms import dropout_posterior, without_wrappers


class DensityValidation(Messenger):
    """Raises for latent sites whose density, or gradient of a draw, is not known."""

    def process_message(self, msg: Any) -> None:
        """Raise for a latent site that is drawn."""
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        fn = msg["fn"]
        if (dropped := dropout_posterior(fn)) is not None:
            raise no_density(dropped.design.site)
        if not (_is_point(fn) or fn.has_rsample):
            name, inner = model_site(msg), without_wrappers(fn)
            raise errors.not_reparameterised(name, inner, framework="NumPyro", by_name=False)


def _is_point(fn: Any) -> bool:
    return isinstance(without_wrappers(fn), dist.Delta)


def check_density(program: Program, guide: dict[str, dict], key: Any) -> None:
    """Raise for dropped weights, and for points that no draw determines."""
    for site in samples(guide):
        if (dropped := dropout_posterior(site["fn"])) is not None:
            raise no_density(dropped.design.site)
    points = [site["name"] for site in samples(guide) if _is_point(site["fn"])]
    if not points:
        return
    unkeyed = program.sharing(key).guide  # draws of subsamples do not count as draws of a site

    def values(key: Any) -> dict[str, Any]:
        seeded = handlers.substitute(handlers.seed(unkeyed, key), data=program.parameters)
        with handlers.block():
            trace = handlers.trace(seeded).get_trace(*program.args, **program.kwargs)
        return {name: trace[name]["value"] for name in points}

    for name, origins in eval_provenance(values, key=key).items():
        if not origins:
            raise errors.point_without_density(name)


def samples(sites: dict[str, dict]) -> list[dict]:
    """Return the sites that are sampled or observed."""
    return [site for site in sites.values() if site["type"] == "sample"]
