"""The ELBO in closed form."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch
from pyro.infer.elbo import ELBO
from pyro.infer.util import is_validation_enabled, torch_item
from pyro.poutine import Trace
from pyro.util import check_model_guide_match, warn_if_inf, warn_if_nan

from moment_calculus.hosts.docstrings import OBJECTIVE_OPTIONS, SITE_TERMS, documented
from moment_calculus.numerics.rulebook import RuleBook, check_draws
from moment_calculus.rulebooks import propagation_of
from pyro_moments.compiled.compiled import CompiledLoss
from pyro_moments.diagnosis import explain_infinite_loss
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.sites.binding import bind
from pyro_moments.sites.latent import auxiliary_term, latent_term
from pyro_moments.sites.observed import observed_term
from pyro_moments.sites.traces import moment_traces


@documented("Pyro", terms=SITE_TERMS, options=OBJECTIVE_OPTIONS)
class DeterministicELBO(ELBO):
    """ELBO by analytic moment propagation: no samples, no gradient noise.

    {terms}

    Guides may be hand-written or Pyro's own, as long as every site is Gaussian, an elementwise
    transform of a Gaussian, a point estimate, or linear in such sites: ``DVIGuide``,
    ``AutoNormal``, ``AutoDiagonalNormal``, ``AutoNormalMessenger``, ``AutoStructured`` with normal
    conditionals, ``AutoDelta``, lists of these; multivariate Normals of scalars and vectors with
    full covariance. Under autocast the moments stay in full precision.

    Args:
        {options}
        compiled: capture the whole program, gradients included, and compile it; see below.
        **options: passed to :class:`pyro.infer.ELBO`.

    Raises:
        ValueError: if ``covariance``, ``rules`` or ``categorical`` is unknown, an option is out
            of range, or particles are to be vectorised.
        UnsupportedMoments: when evaluated, if the model or the guide leaves the supported
            operations; the message names the operation, the line, the sites and the remedy.

    With ``compiled=True`` the first call for each signature (shapes, strides, dtypes and devices of
    the tensors, values of the other arguments) runs model and guide a few times and captures what
    they compute; later calls run the compiled result. Tensors are inputs: parameters, arguments,
    and what the program reads from attributes, closures and globals are read anew at every call;
    random draws and subsamples are made anew. Numbers and flags found in such places are watched: a
    change leads to another capture, up to eight in all. Assumed is that the structure of the
    program does not depend on the values of tensors, that the contents of NumPy arrays stay as they
    are, and that Pyro's validation is needed in the first call only. The loss is differentiable
    once. Where capture is impossible the loss is evaluated eagerly; where no C++ compiler works the
    captured operations are replayed; both after one :class:`CaptureWarning`. Sigmoid and tanh take
    their covariances from the fixed series of
    :func:`moment_calculus.functions.pairs.covariance.covariance`, whose error is stated there.

    Source: Wu et al. 2019 (DVI).

    Example:
        >>> elbo = DeterministicELBO(covariance="diagonal")
    """

    def __init__(
        self,
        *,
        covariance: str = "full",
        rules: str | RuleBook = "exact",
        categorical: str = "delta",
        categorical_draws: int = 1,
        sample_sites: Collection[str] = (),
        num_particles: int = 1,
        memory_limit: float | None = None,
        compiled: bool = False,
        **options: Any,
    ) -> None:
        check_draws(sample_sites, num_particles)
        _check_options(options)
        super().__init__(num_particles=num_particles, **options)
        self.propagation = propagation_of(
            covariance, rules, categorical, memory_limit, categorical_draws
        )
        self.sample_sites = frozenset(sample_sites)
        self.compiled = CompiledLoss(self._eager, self._settings) if compiled else None

    def _settings(self) -> tuple:
        return self.propagation, self.sample_sites, self.num_particles

    def _get_trace(self, model: Any, guide: Any, args: tuple, kwargs: dict) -> tuple[Trace, Trace]:
        bind(guide, model)
        propagation, sampled = self.propagation, self.sample_sites
        traces = moment_traces(model, guide, args, kwargs, propagation, sampled)
        if is_validation_enabled():
            check_model_guide_match(*traces, self.max_plate_nesting)
        return traces

    def differentiable_loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        """Negative ELBO as a tensor that can be differentiated.

        Args:
            model: Pyro model.
            guide: Pyro guide; one without a model is bound to ``model``.
            *args: passed to both.
            **kwargs: passed to both.
        """
        if self.compiled is not None:
            return self.compiled.differentiable(model, guide, args, kwargs)
        return self._eager(model, guide, *args, **kwargs)

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        total: Any = 0.0
        for model_trace, guide_trace in self._get_traces(model, guide, args, kwargs):
            with full_precision():
                total = total + _elbo(model_trace, guide_trace)
        if is_validation_enabled() and not math.isfinite(torch_item(total)):
            explain_infinite_loss(model_trace.nodes, model, args, kwargs)
        return -total / self.num_particles

    def site_terms(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        """What each site contributes to the ELBO; arguments as in :meth:`differentiable_loss`."""
        totals: dict[str, float] = {}
        with torch.no_grad():
            for traces in self._get_traces(model, guide, args, kwargs):
                with full_precision():
                    for name, term in elbo_terms(*traces).items():
                        totals[name] = totals.get(name, 0.0) + torch_item(term)
        return {name: total / self.num_particles for name, total in totals.items()}

    def loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> float:
        """Negative ELBO as a number; arguments as in :meth:`differentiable_loss`."""
        with torch.no_grad():
            return torch_item(self.differentiable_loss(model, guide, *args, **kwargs))

    def loss_and_grads(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> float:
        """Negative ELBO as a number, its gradients left in the parameters' ``grad``."""
        loss = None
        if self.compiled is not None:
            loss = self.compiled.with_gradients(model, guide, args, kwargs)
        if loss is None:
            loss = self._eager(model, guide, *args, **kwargs)
            if getattr(loss, "requires_grad", False):
                with full_precision():
                    loss.backward(retain_graph=self.retain_graph)
        value = torch_item(loss)
        if self.compiled is not None and not math.isfinite(value) and is_validation_enabled():
            self._eager(model, guide, *args, **kwargs)  # which names the cause
        warn_if_nan(value, "loss")
        warn_if_inf(value, "loss")
        return value


def _check_options(options: dict[str, Any]) -> None:
    if options.get("vectorize_particles"):
        raise ValueError(
            "vectorize_particles=True is not supported: without sample_sites one pass is exact, "
            "with them the num_particles draws are looped over"
        )


def _elbo(model_trace: Trace, guide_trace: Trace) -> Any:
    total: Any = 0.0
    for term in elbo_terms(model_trace, guide_trace).values():
        total = total + term
    return total


def elbo_terms(model_trace: Trace, guide_trace: Trace) -> dict[str, Any]:
    """What each site contributes to the ELBO, as scalars by name.

    Args:
        model_trace: of the model, with moments for the latent sites.
        guide_trace: of the guide, likewise.
    """
    terms = {}
    for name, site in model_trace.nodes.items():
        if site["type"] != "sample" or (site["infer"] or {}).get("_deterministic"):
            continue  # deterministic sites are recorded as observed, and contribute nothing
        if site["is_observed"]:
            terms[name] = observed_term(name, site)
        else:
            terms[name] = latent_term(name, site, guide_trace)
    for name, site in guide_trace.nodes.items():
        if site["type"] == "sample" and name not in model_trace.nodes:
            terms[name] = auxiliary_term(site)
    return terms
