"""The ELBO in closed form."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from pyro.infer.util import is_validation_enabled, torch_item
from pyro.poutine import Trace

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from pyro_moments._host import tree_leaves, tree_map
from pyro_moments.evaluation.failure_causes import explain_infinite_loss
from pyro_moments.objectives.base import FromTraces, Objective, Program, is_finite
from pyro_moments.sites.terms import (
    Divergence,
    auxiliary_term,
    divergence_of,
    latent_term,
    observed_term,
    rule_terms,
    summed,
)
from pyro_moments.sites.traces import is_latent, is_observation


class DeterministicELBO(Objective):
    """ELBO by analytic moment propagation: no samples, no gradient noise.

    Gaussian latent sites flow through the model as moments; the expected log-likelihood
    of every observed site and the KL divergence of every latent site are taken in closed
    form. Each site contributes s_model (−KL − H) + s_guide H, with the scales and masks
    of model and guide, so the result equals Pyro's ``Trace_ELBO`` in expectation. Beyond
    the first random layer the activations are matched by Gaussians, which is the
    approximation of the source paper.

    Guides may be hand-written or Pyro's own, as long as every site is Gaussian, an
    elementwise transform of a Gaussian, a point estimate, or linear in such sites:
    ``DVIGuide``, ``AutoNormal``, ``AutoDiagonalNormal``, ``AutoNormalMessenger``,
    ``AutoStructured`` with normal conditionals, ``AutoDelta``, lists of these;
    multivariate Normals of scalars and vectors with full covariance. Under autocast the
    moments stay in full precision.

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
        compiled: capture the whole program, gradients included, and compile it; see
            below.
        **options: passed to :class:`pyro.infer.ELBO`.

    Raises:
        ValueError: if ``covariance``, ``rules`` or ``categorical`` is unknown, an option
            is out of range, or particles are to be vectorised.
        UnsupportedMoments: when evaluated, if the model or the guide uses an operation
            that is not supported; the message names the operation, the line, the sites
            and the remedy.

    With ``compiled=True`` the first call for each signature (shapes, strides, dtypes and
    devices of the tensors, values of the other arguments) runs model and guide a few times,
    captures what they compute and compiles it, which takes seconds; later calls run the
    compiled result. Tensors are inputs: parameters, arguments, and tensors in attributes,
    closures and globals are read anew at every call; random draws and subsamples are made anew.
    If a number or flag in such a place changes, the program is captured again, up to eight
    times for one model and guide; those of 32 models and guides are kept. It is assumed that
    the structure of the program does not depend on the values of tensors, that the contents of
    NumPy arrays do not change, and that Pyro's validation is needed in the first call only. The
    loss is differentiable once. If capture is impossible, the loss is evaluated eagerly; if no
    C++ compiler works, the captured operations are replayed; both after one
    :class:`CaptureWarning`. Sigmoid and tanh take the covariances of small layers from the
    fixed series of :func:`moment_calculus.functions.pairs.covariance.covariance`, whose error
    is stated there; covariances of large layers are computed as in eager programs, by
    operations of their own.

    Source: Wu et al. 2019 (DVI).

    Example:
        >>> elbo = DeterministicELBO(covariance="diagonal")
    """

    def _eager(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
        return -self._mean(elbo, Program(model, guide, args, kwargs))

    def _mean(self, consume: FromTraces, program: Program) -> Any:
        """Return the mean over particles of what ``consume`` makes of their traces."""

        def consume_last(model_trace: Trace, guide_trace: Trace) -> Any:
            last.append(model_trace)
            return consume(model_trace, guide_trace)

        last: list[Trace] = []
        try:
            results = self.particles(program, consume_last)
        except UnsupportedMoments as refusal:
            raise self.with_remedy(refusal, lambda held: held.particles(program, consume)) from None
        means = tree_map(lambda part: part.mean(0), results)
        if is_validation_enabled() and not all(map(is_finite, tree_leaves(means))):
            explain_infinite_loss(last[-1].nodes, program.model, program.args, program.kwargs)
        return means

    def particle_terms(self, program: Program) -> tuple[torch.Tensor, ...]:
        """Return the terms of data and latent sites of every particle, and ones."""
        data, latent = self.particles(program, _data_and_latent)
        return data, latent, torch.ones_like(latent)

    def site_terms(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Return the terms of the ELBO by site; arguments as in :meth:`differentiable_loss`."""
        with torch.no_grad():
            terms = self._mean(elbo_terms, Program(model, guide, args, kwargs))
            return {name: torch_item(term) for name, term in terms.items()}


def elbo(model_trace: Trace, guide_trace: Trace) -> torch.Tensor:
    """Return the ELBO as a scalar, from the traces of model (with moments) and guide."""
    return total(_data_and_latent(model_trace, guide_trace))


def _data_and_latent(model_trace: Trace, guide_trace: Trace) -> tuple[torch.Tensor, torch.Tensor]:
    observed = observed_terms(model_trace).values()
    return total([*observed]), latent_sum(model_trace, guide_trace)


def elbo_terms(model_trace: Trace, guide_trace: Trace) -> dict[str, Any]:
    """Return the terms of the ELBO by site, as scalars."""
    return observed_terms(model_trace) | latent_terms(model_trace, guide_trace)


def observed_terms(model_trace: Trace) -> dict[str, Any]:
    """Return the terms of the observed sites, and of the rule book, as scalars by name."""
    sites = {name: site for name, site in model_trace.nodes.items() if is_observation(site)}
    terms = {name: observed_term(name, site) for name, site in sites.items()}
    return terms | rule_terms(sites.values())


def latent_terms(
    model_trace: Trace, guide_trace: Trace, without: Collection[str] = ()
) -> dict[str, Any]:
    """Return the terms of the latent sites that are not in ``without``, by name."""
    terms = {
        name: latent_term(name, site, _guide_site(name, guide_trace), model_trace.nodes)
        for name, site in model_trace.nodes.items()
        if name not in without and is_latent(site)
    }
    for name, site in guide_trace.nodes.items():
        if site["type"] == "sample" and name not in model_trace.nodes:
            terms[name] = auxiliary_term(name, site)
    return terms


def _guide_site(name: str, guide_trace: Trace) -> Any:
    if name not in guide_trace.nodes:
        raise errors.not_in_guide(name)
    return guide_trace.nodes[name]


def latent_sum(model_trace: Trace, guide_trace: Trace) -> torch.Tensor:
    """Return the sum of the terms of all latent sites.

    The divergences of small sites are computed together, because their number costs the
    time.
    """
    # A compiler fuses a traced program better without the copies that ``summed`` makes.
    sites = model_trace.nodes if private_apis.is_untraced() else {}
    by_key: dict[Any, dict[str, Divergence]] = {}
    for name, site in sites.items():
        part = divergence_of(site, _guide_site(name, guide_trace)) if is_latent(site) else None
        if part is not None and (key := part.batch_key) is not None:
            by_key.setdefault(key, {})[name] = part
    done = [name for parts in by_key.values() for name in parts]
    alone = latent_terms(model_trace, guide_trace, without=done)
    return total([*alone.values(), *(-summed([*p.values()]) for p in by_key.values())])


def total(terms: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum of scalars; zero if there are none."""
    return functools.reduce(operator.add, terms) if terms else torch.zeros((), device="cpu")
