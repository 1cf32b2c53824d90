"""Terms of sites by held draws, where moments are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine import Trace
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites, site_is_subsample

from moment_calculus import UnsupportedMoments
from moment_calculus.predictions import Moments
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.uncertain_inputs import with_values
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.particles.noise import mapped_over
from pyro_moments.sites.terms import POSTERIORS, scaled_sum, without_wrappers

_JOINT = (torch.distributions.MultivariateNormal,)


class HeldSites(Messenger):
    """Gives Gaussian sites of a guide a value by held noise, a row with all coordinates.

    Without noise it notes how many coordinates there are, and sites are at their medians.
    """

    def __init__(self, noise: torch.Tensor | None = None) -> None:
        super().__init__()
        self.noise, self.used, self.is_joint = noise, 0, False

    def _pyro_sample(self, msg: Any) -> None:
        if site_is_subsample(msg):
            _require_whole(msg)
            return
        is_given = msg["is_observed"] or msg["done"] or msg["value"] is not None
        if not is_given and not isinstance(without_wrappers(msg["fn"]), dist.Delta):
            msg["value"], msg["done"] = self._value(msg["name"], msg["fn"]), True

    def _value(self, name: str, fn: Any) -> torch.Tensor:
        shape = fn.batch_shape + fn.event_shape
        if isinstance(fn, WRAPPERS):
            return self._value(name, fn.base_dist).expand(shape)
        if isinstance(fn, POSTERIORS.normals):
            return fn.loc + fn.scale * self._next(shape, fn.loc)
        if isinstance(fn, _JOINT):
            self.is_joint = True
            noise = self._next(shape, fn.loc)
            return fn.loc + (fn.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)
        if isinstance(fn, POSTERIORS.of_plates):
            self.is_joint = True
            return fn.image(self._next(shape, fn.loc))
        if isinstance(fn, POSTERIORS.transformed):
            value = self._value(name, fn.base_dist)
            for transform in fn.transforms:
                value = transform(value)
            return value
        raise UnsupportedMoments(
            f"held draws are of Gaussian sites and their transforms, and the guide's site '{name}' "
            f"is {type(fn).__name__}",
            sites=[name],
            remedy="use DVIGuide or GaussianGuide",
        )

    def _next(self, shape: torch.Size, like: torch.Tensor) -> torch.Tensor:
        start, self.used = self.used, self.used + shape.numel()
        if self.noise is None:
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        return self.noise[start : self.used].to(like).reshape(shape)


def _require_whole(msg: Any) -> None:
    if msg["fn"].subsample_size not in (None, msg["fn"].size):
        raise UnsupportedMoments(
            f"plate '{msg['name']}' draws a subsample, and held draws take the same rows each time",
            remedy="leave out subsample_size; fit(..., batch_size=) makes mini-batches",
        )


@dataclass(frozen=True, eq=False)
class HeldTerms:
    """Means over held draws of the terms of all sites, computed when one is asked for."""

    objective: Any
    model: Callable
    guide: Callable
    args: tuple
    kwargs: dict[str, Any]

    def term(self, name: str) -> torch.Tensor:
        """Return the term of a site: E_q[log p], less E_q[log q] of a latent one."""
        terms = self._terms[name]
        if self.objective.held_sites is not None:
            self.objective.held_sites[name] = len(terms)
        return terms.mean(0)

    @cached_property
    def _terms(self) -> dict[str, torch.Tensor]:
        """Return the terms of sites at each draw, [draws]."""
        with full_precision(), pyro.validation_enabled(False), torch.no_grad():
            counted = HeldSites()
            self._traces(counted)
        noise = self.objective.held_noise(counted.used, counted.is_joint)
        with full_precision(), pyro.validation_enabled(False):
            return mapped_over(self._at, torch.as_tensor(noise, device="cpu"))

    def _traces(self, sites: HeldSites) -> tuple[Trace, Trace]:
        args, kwargs = with_values(self.model, self.args, self.kwargs, _refuse_uncertain)
        with sites:
            guide_trace = poutine.trace(self.guide).get_trace(*args, **kwargs)
        replayed = poutine.replay(self.model, trace=guide_trace)
        model_trace = poutine.trace(replayed).get_trace(*args, **kwargs)
        return prune_subsample_sites(model_trace), prune_subsample_sites(guide_trace)

    def _at(self, noise: torch.Tensor) -> dict[str, torch.Tensor]:
        model_trace, guide_trace = self._traces(HeldSites(noise))
        terms, of_guide = map(_log_densities, (model_trace, guide_trace))
        terms = {name: term - of_guide.get(name, 0.0) for name, term in terms.items()}
        return {name: torch.as_tensor(term, device=noise.device) for name, term in terms.items()}


def _log_densities(trace: Trace) -> dict[str, Any]:
    sites: list[Any] = [site for site in trace.nodes.values() if site["type"] == "sample"]
    return {site["name"]: scaled_sum(site["fn"].log_prob(site["value"]), site) for site in sites}


def _refuse_uncertain(name: str, moments: Moments) -> Any:
    raise UnsupportedMoments(
        f"argument '{name}' is uncertain, and held draws are of latent sites alone",
        remedy="make it a latent site of the model",
    )
