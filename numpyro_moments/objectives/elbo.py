"""The ELBO in closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from numpyro_moments.evaluation.failure_causes import explain_infinite_loss
from numpyro_moments.objectives.base import Objective, Program
from numpyro_moments.sites.terms import auxiliary_term, latent_term, observed_term, rule_terms
from numpyro_moments.sites.traces import Traces


class DeterministicELBO(Objective):
    """ELBO by analytic moment propagation: no samples, no gradient noise.

    Gaussian latent sites flow through the model as moments; the expected log-likelihood
    of every observed site and the KL divergence of every latent site are taken in closed
    form. Each site contributes s_model (−KL − H) + s_guide H, with the scales and masks
    of model and guide, so the result equals NumPyro's ``Trace_ELBO`` in expectation.
    Beyond the first random layer the activations are matched by Gaussians, which is the
    approximation of the source paper.

    Guides may be hand-written or NumPyro's own, as long as every site is Gaussian, an
    elementwise transform of a Gaussian, a point estimate, or linear in such sites:
    ``DVIGuide``, ``AutoNormal``, ``AutoDiagonalNormal``, ``AutoDelta``, multivariate
    Normals with full covariance. The loss is a function of arrays like any other: under
    ``jax.jit``, ``jax.grad``, ``jax.vmap`` and on a device mesh.

    Args:
        covariance: ``"full"`` carries the covariance over the feature axis, O(d²) memory
            for each element of the batch. ``"diagonal"`` carries the variances only, O(d).
            ``"backward"`` carries the variances too, and finds the covariance of what a
            likelihood asks for by one pull back through the model for each parameter, as
            exact as ``"full"`` for networks (standard deviations 0.98 of those of draws
            after training three hidden layers); it also goes through convolutions, tied
            weights and recurrent cells. Functions of differences and of overlapping parts
            of one value are approximate: up to 12 % in a standard deviation, and 24 to 47 %
            for sums of ``|x_i - x_j|`` over pairs, where ``"full"`` is exact. By default what
            the guide names: ``"backward"`` of ``MCDropoutGuide`` and ``TridiagonalGuide``,
            ``"full"`` of all others.
        rules: rule book: ``"exact"`` (covariances of activations without closed pairs by
            32 terms of a series, see
            :func:`moment_calculus.functions.pairs.covariance.covariance`), ``"dvi"`` for
            the source paper's approximate covariances, ``"first_order"`` for the delta
            method, ``"vbp"`` for gates by the mean of their input (Haussmann et al. 2019),
            ``"logistic"`` for the formulas of Shekhovtsov et al. 2018, or a rule book of
            your own.
        categorical: rule for classes with Gaussian logits, whose joint covariance is used
            in diagonal mode too; by default that of the rule book, or points:
            ``"points"`` (fixed points, 2 to 3 % off at the optimum
            of a network with one hidden layer), ``"pairs"`` (pairwise logsumexp, 2 to 6
            %), the lower bounds ``"tilted"`` and ``"jensen"``, ``"delta"`` (the source
            papers', wrong by factors once it is trained) or ``"sample"`` (unbiased: the
            logits alone are drawn). BB-α knows the means of powers by points, pairs and
            draws.
        categorical_draws: number of draws of the logits for ``categorical="sample"``.
        sample_sites: names of latent sites that are drawn by reparameterisation instead.
        num_particles: number of draws of the ``sample_sites``; one pass suffices without
            them.
        memory_limit: bytes that one covariance may take, checked before it is computed;
            by default half of the physical memory.
        held_draws: number of draws of the latent sites that integrate terms without a moment
            rule, and are the same in every evaluation; with 0 these are refused. ``fit(...,
            unsupported="held draws")`` chooses the number.
        sum_sites: whether the loss is one number, or a dictionary of what each site
            contributes.
        **options: passed to :class:`numpyro.infer.elbo.ELBO`.

    Raises:
        ValueError: if ``covariance``, ``rules`` or ``categorical`` is unknown, or an
            option is out of range.
        UnsupportedMoments: when evaluated, if the model or the guide uses an operation
            that is not supported; the message names the operation, the line, the sites
            and the remedy.

    Source: Wu et al. 2019 (DVI).

    Example:
        >>> elbo = DeterministicELBO(covariance="diagonal")
    """

    def __init__(self, *, sum_sites: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.sum_sites = sum_sites

    def loss_with_mutable_state(
        self,
        rng_key: Any,
        param_map: dict[str, Any],
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Return the negative ELBO, and the new values of the mutable sites.

        Args:
            rng_key: random key for subsamples, the ``sample_sites``, the model's own
                draws.
            param_map: values of the ``param`` and ``mutable`` sites by name.
            model: NumPyro model.
            guide: NumPyro guide; one without a model is bound to ``model``.
            *args: passed to both.
            **kwargs: passed to both.

        Returns:
            Dictionary with ``"loss"``, and ``"mutable_state"`` (None if there is none).
        """
        program = Program(model, guide, args, kwargs, param_map)
        terms = partial(self._terms, program)
        try:
            drawn, mutable = self.particles(rng_key, program, terms)
        except UnsupportedMoments as refusal:
            attempt = lambda held: held.particles(rng_key, program, terms)  # noqa: E731
            raise self.with_remedy(refusal, attempt) from None
        losses = {name: -jnp.mean(term) for name, term in drawn.items()}
        loss = sum(losses.values(), start=jnp.zeros(())) if self.sum_sites else losses
        return {"loss": loss, "mutable_state": mutable}

    def particle_terms(self, key: Any, program: Program) -> tuple[tuple[Any, ...], Any]:
        """Return the terms of data and latent sites of particles, and ones; mutable sites."""

        def terms(traces: Traces) -> Any:
            parts = observed_terms(traces), latent_terms(traces)
            return [sum(part.values(), start=jnp.zeros(())) for part in parts]

        (data, latent), mutable = self.particles(key, program, terms)
        return (data, latent, jnp.ones_like(latent)), mutable

    def _terms(self, program: Program, traces: Traces) -> dict[str, Any]:
        terms = elbo_terms(traces)
        if any(_is_infinite(term) for term in terms.values()):
            explain_infinite_loss(traces.model, program.model, program.args, program.kwargs)
        return terms


def _is_infinite(term: Any) -> bool:
    """Return whether a term is known and not finite; inside ``jax.jit`` none is known."""
    return not private_apis.is_traced(term) and not bool(jnp.isfinite(term))


def elbo_terms(traces: Traces) -> dict[str, Any]:
    """Return the terms of the ELBO by site, as scalars."""
    return observed_terms(traces) | latent_terms(traces)


def observed_terms(traces: Traces) -> dict[str, Any]:
    """Return the terms of the observed sites, and of the rule book, as scalars by name."""
    sites = {
        name: site
        for name, site in traces.model.items()
        if site["type"] == "sample" and site["is_observed"]
    }
    terms = {name: observed_term(name, site) for name, site in sites.items()}
    return terms | rule_terms(sites.values())


def latent_terms(traces: Traces) -> dict[str, Any]:
    """Return the terms of the latent sites, as scalars by name."""
    terms = {}
    for name, site in traces.model.items():
        if site["type"] == "sample" and not site["is_observed"]:
            terms[name] = latent_term(name, site, _guide_site(name, traces.guide), traces.model)
    for name, site in traces.guide.items():
        if site["type"] == "sample" and name not in traces.model:
            terms[name] = auxiliary_term(name, site)
    return terms


def _guide_site(name: str, guide: dict[str, dict]) -> dict:
    if name in guide:
        return guide[name]
    raise errors.not_in_guide(name)
