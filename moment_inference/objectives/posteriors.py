"""Moments, entropies and ELBO terms of a guide's sites, by their distributions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeGuard

from moment_calculus.errors import (
    UnsupportedMoments,
    dependent_posterior,
    discrete_site,
    ignored_correlations,
    ignored_dependence,
    no_posterior_moments,
)
from moment_calculus.functions.table import Activation, Integrated
from moment_calculus.likelihoods import divergences
from moment_calculus.likelihoods.divergences import sum_trailing
from moment_calculus.numerics.arrays import Array, squared
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, scale_shift, site_value
from moment_calculus.operations.shapes.coordinates import Support, image_of, on_support
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian, PendingWeight, Spread, Value
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from moment_guides.families import mc_dropout
from moment_guides.families.mc_dropout import (
    infinite_at_zero,
    masked_site_not_used,
    no_dropout_prior,
)
from moment_guides.families.missing_values import entropy_of_missing, is_missing_part
from moment_guides.families.plate_normal import PlateNormalBase
from moment_inference.objectives.held_draws import TermsOrHeld
from moment_inference.objectives.rule_terms import over_rows, rule_terms

Posterior = Any  # a distribution of the framework
Transform = Any
Sites = Mapping[str, Any]


class Posteriors(ABC):
    """What the distributions of a framework say about latent sites."""

    framework: str
    # Classes of the framework, or tuples of them: distributions, …
    wrappers: Any  # masks, expansions and independent dimensions
    mask: Any  # one of them
    normals: Any  # with independent components
    chain: Any  # TridiagonalNormal
    dropped: Any  # DroppedWeight
    full_rank: Any
    of_plates: Any = PlateNormalBase
    delta: Any
    transformed: Any
    # … and transforms.
    affine: Any
    composed: Any
    identity: Any
    # that mix components, with the supports they lead to, or functions of the event's rank to these
    mixed: dict[tuple[type, ...], Any]
    correlation: Any  # of which the inverse takes Cholesky factors to correlation matrices

    @abstractmethod
    def value(self, parameter: Any) -> Any:
        """Return a parameter, if it is random as a value of the calculus."""

    @abstractmethod
    def random_parameters(self, distribution: Any) -> Sequence[Any]:
        """Return the random values inside a distribution, or inside transforms."""

    @abstractmethod
    def is_one_to_one(self, transform: Transform) -> bool:
        """Return whether a transform is one to one, and treats elements alike or is affine."""

    @abstractmethod
    def function_of(self, transform: Transform) -> Activation:
        """Return an elementwise transform as an activation."""

    @abstractmethod
    def masked(self, terms: Array, mask: Any) -> Array:
        """Return terms with zeros where they are masked."""

    @abstractmethod
    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Array:
        """Return an array broadcast to a shape."""

    @abstractmethod
    def mask_of(self, site: Any) -> Any:
        """Return the mask of a site by element of its batch; None if there is none."""

    def without_wrappers(self, fn: Posterior) -> Any:
        """Return the distribution inside masks, expansions and independent dimensions."""
        while isinstance(fn, self.wrappers):
            fn = fn.base_dist
        return fn

    def dropout_posterior(self, fn: Posterior) -> Any:
        """Return the DroppedWeight inside wrappers; None for any other distribution."""
        inner = self.without_wrappers(fn)
        return inner if isinstance(inner, self.dropped) else None

    def gaussian_base(
        self, fn: Posterior, with_chains: bool = False
    ) -> tuple[Any, list[Transform]]:
        """Return the Normal or chain inside a distribution, and its transforms in order.

        The Normal is None if there is none, or a transform mixes components or is not one
        to one.
        """
        kinds = (*self.normals, self.chain) if with_chains else self.normals
        transforms: list[Transform] = []
        while type(fn) not in kinds:
            if isinstance(fn, self.transformed):
                transforms = [p for t in fn.transforms for p in self._elementary(t)] + transforms
            elif not isinstance(fn, self.wrappers):
                return None, []
            fn = fn.base_dist
        elementwise = not any(map(_mixes, transforms)) and all(map(self.is_one_to_one, transforms))
        return (fn if elementwise else None), transforms

    def mixed_image(self, fn: Posterior) -> tuple[Any, Any, Support] | None:
        """Return what a transform mixes, the Normal in it, and the support; else None."""
        inner = self.without_wrappers(fn)
        if not isinstance(inner, self.transformed):
            return None
        support = self.mixed_support(inner.transforms, inner.event_dim)
        normal, transforms = self.gaussian_base(inner.base_dist)
        if support is None or normal is None or transforms:
            return None
        return inner.base_dist, normal, support

    def mixed_support(self, transforms: Sequence[Transform], event_dim: int) -> Support | None:
        """Return the support to which transforms mix their coordinates; None of others."""
        parts = [part for transform in transforms for part in self._elementary(transform)]
        support = self.mixed.get(tuple(map(self._kind, parts)))
        if support is None or isinstance(support, Support):
            return support
        return support(event_dim)

    def _kind(self, transform: Transform) -> type:
        inverse = type(transform.inv)
        return inverse if inverse is self.correlation else type(transform)

    def _elementary(self, transform: Transform) -> list[Transform]:
        while hasattr(transform, "base_transform"):  # an IndependentTransform
            transform = transform.base_transform
        if isinstance(transform, self.composed):
            return [part for inner in transform.parts for part in self._elementary(inner)]
        return [] if self._is_identity(transform) else [transform]

    def _is_identity(self, transform: Transform) -> bool:
        if not isinstance(transform, self.affine):
            return isinstance(transform, self.identity)
        parts = transform.loc, transform.scale  # the last one to a half line is 0 + 1 · x
        return all(isinstance(part, int | float) for part in parts) and parts == (0, 1)

    def mixes_elements(self, transform: Transform) -> bool:
        """Return whether a transform takes several elements to one, as to a simplex."""
        return any(map(_mixes, self._elementary(transform)))

    def posterior_value(
        self, name: str, fn: Posterior, propagation: Propagation, remedy: str = ""
    ) -> Any:
        """Return the value of a latent site with a posterior; raise if it has no moments.

        The posterior is a Normal with independent components given its location, or a
        chain; an elementwise transform of one; in full mode a multivariate Normal; or a
        dropped weight.
        """
        if (dropped := self.dropout_posterior(fn)) is not None:
            return dropped.value(name, propagation)
        base, transforms = self.gaussian_base(fn, with_chains=True)
        if base is not None and transforms and (random := self.random_parameters(transforms)):
            raise dependent_posterior(name, "transform", random[0].sites)
        if isinstance(base, self.chain):
            return self._image_of(base.value(name, propagation), transforms)
        if base is not None:
            return self._image_of(self._normal(name, fn, base, propagation), transforms)
        if (image := self.mixed_image(fn)) is not None:
            base, normal, support = image
            return on_support(support, self._normal(name, base, normal, propagation))
        inner = self.without_wrappers(fn)
        if isinstance(inner, (self.of_plates, self.full_rank)) and fn.event_dim == 1:
            return self._full_rank(name, fn, inner, propagation)
        if inner.support is not None and inner.support.is_discrete:
            raise discrete_site(name, inner, framework=self.framework)
        raise no_posterior_moments(name, inner, remedy)

    def _image_of(self, base: Gaussian, transforms: Sequence[Transform]) -> Value:
        value: Value = base
        for transform in transforms:
            if isinstance(transform, self.affine):
                value = scale_shift(value, transform.scale, transform.loc)
            else:
                value = apply(self.function_of(transform), value)
        return value

    def _normal(self, name: str, fn: Posterior, base: Any, propagation: Propagation) -> Gaussian:
        """Return the value of a Normal, whose location may be random.

        A random location m is supported where it is Gaussian: x ~ N(m, s²) is m plus an
        independent N(0, s²). In diagonal mode it must leave the components of a vector
        independent.
        """
        loc, scale = self.value(base.loc), self.value(base.scale)
        if hasattr(scale, "sites"):
            raise dependent_posterior(name, "scale", scale.sites)
        centred = hasattr(loc, "sites")
        if centred and not isinstance(loc, Gaussian):
            raise dependent_posterior(name, "non-linear location", loc.sites)
        shape = tuple(fn.batch_shape + fn.event_shape)
        parts = 0.0 * scale if centred else loc, squared(scale)
        mean, variance = [self.broadcast(part, shape) for part in parts]
        gaussian = site_value(name, mean, variance, propagation, event_dim=fn.event_dim)
        if not centred:
            return gaussian
        value = add(broadcast(loc, shape), gaussian).gaussian()
        features = 1 if value.axis is None else value.shape[value.axis]
        if propagation.covariance == "diagonal" and not value.independent and features > 1:
            raise ignored_dependence(name, loc.sites)
        return value

    def _full_rank(
        self, name: str, fn: Posterior, inner: Any, propagation: Propagation
    ) -> Gaussian:
        if propagation.covariance == "diagonal":
            raise ignored_correlations(name, inner)
        if isinstance(inner, self.of_plates):
            return inner.value(name, propagation)
        if random := self.random_parameters(inner):
            parameter = "location" if hasattr(self.value(inner.loc), "sites") else "covariance"
            raise dependent_posterior(name, parameter, random[0].sites)
        shape = fn.batch_shape + fn.event_shape
        covariance = self.broadcast(inner.covariance_matrix, shape + fn.event_shape)
        return Gaussian(
            self.broadcast(inner.loc, shape),
            Spread(covariance=covariance),
            support=all_elements([name]),
            propagation=propagation,
        )

    def entropy(self, value: Any, fn: Posterior) -> Array:
        """Return −E_q[log q] of a site given those before it, [*batch], zero where masked."""
        if isinstance(fn, self.wrappers):
            return self.wrapped_terms(fn, self.entropy(value, fn.base_dist))
        normal, transforms = self.gaussian_base(fn, with_chains=True)
        if normal is None:
            return self._entropy_of_others(value, fn)
        shape, variance = fn.batch_shape + fn.event_shape, normal.scale * normal.scale
        result = divergences.gaussian_entropy(self.broadcast(variance, shape))
        if transforms:
            slope = divergences.expected_log_slope(value)
            if slope is None:
                moments = self._marginal(normal, variance)
                slope = _expected_log_slope(
                    transforms, *(self.broadcast(part, shape) for part in moments)
                )
            result = result + slope
        return sum_trailing(result, fn.event_dim) + self.half_log_determinant(normal)

    def _entropy_of_others(self, value: Any, fn: Posterior) -> Array:
        """Return the entropy of a mixed image, or of a distribution that knows its own."""
        known, image = self.mixed_image(fn), image_of(value)
        if known is None or image is None:
            return self.broadcast(fn.entropy(), fn.batch_shape)
        return self.entropy(image.coordinates, known[0]) + image.expected_log_slope

    def _marginal(self, normal: Any, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of a Normal whose location may be random."""
        loc = self.value(normal.loc)
        if not hasattr(loc, "sites"):
            return loc, variance
        location = loc.gaussian()
        return location.mean, location.variance + variance

    def wrapped_terms(self, fn: Posterior, terms: Array) -> Array:
        """Return terms of a wrapped distribution as terms [*batch] of its wrapper."""
        if hasattr(fn, "reinterpreted_batch_ndims"):
            return sum_trailing(terms, fn.reinterpreted_batch_ndims)
        terms = self.broadcast(terms, fn.batch_shape)
        return self.masked(terms, fn._mask) if isinstance(fn, self.mask) else terms

    def half_log_determinant(self, fn: Posterior) -> Any:
        """Return ½ log |R| of the correlation matrix of an event; zero if that is diagonal."""
        return 0.5 * fn.log_determinant() if isinstance(fn, self.chain) else 0.0

    def certain_prior(self, moments: Any, fn: Posterior, prior: Posterior) -> Any:
        """Return the Normal in a prior if the divergence from it is closed, else None.

        It is if the prior has certain parameters and the site, with posterior ``fn``, has
        independent components of its own or is a chain, and both are without masks.
        """
        normal, transforms = self.gaussian_base(prior)
        if normal is None or transforms or self.random_parameters(normal):
            return None
        inner = self.without_wrappers(fn)
        chained = isinstance(moments, Gaussian) and isinstance(inner, self.chain)
        if not (chained or _is_leaf(moments)) or isinstance(inner, self.delta):
            return None
        return None if self._is_masked(fn) or self._is_masked(prior) else normal

    def _is_masked(self, fn: Any) -> bool:
        while isinstance(fn, self.wrappers):
            if isinstance(fn, self.mask):
                return True
            fn = fn.base_dist
        return False

    def value_at_mean(self, name: str, fn: Posterior) -> Array:
        """Return a latent site's value at its posterior mean, or of the base of a transform."""
        inner = self.without_wrappers(fn)
        if isinstance(inner, self.transformed):
            value = self.value_at_mean(name, inner.base_dist)
            for transform in inner.transforms:
                value = transform(value)
        else:
            try:
                value = inner.mean
            except NotImplementedError:
                raise no_posterior_moments(name, inner, "") from None
        return self.broadcast(value, fn.batch_shape + fn.event_shape)


def _is_leaf(moments: Any) -> TypeGuard[Gaussian]:
    return isinstance(moments, Gaussian) and not moments.step.inputs and not moments.has_covariance


def _mixes(transform: Transform) -> bool:
    return bool(transform.domain.event_dim or transform.codomain.event_dim)


def _expected_log_slope(transforms: Sequence[Transform], mean: Array, variance: Array) -> Array:
    """Return E[log |dz/du|] of a transform z of a Gaussian u, for its entropy."""

    def log_slope(points: Array) -> Array:
        total = 0 * points
        for transform in transforms:
            image = transform(points)
            total, points = total + transform.log_abs_det_jacobian(points, image), image
        return total

    return Integrated(log_slope, constants=None).moments(mean, variance)[0]


class LatentTerms(TermsOrHeld):
    """Terms of latent sites in the ELBO: divergences, or prior and entropy separately.

    A site is a dictionary with its distribution ``fn``, its ``value``, and its scale.
    """

    def __init__(self, posteriors: Posteriors) -> None:
        self.posteriors = posteriors

    @abstractmethod
    def evaluate(self, name: str, fn: Posterior, value: Any) -> Array:
        """Return E_q[log p] of a value, [*batch]."""

    @abstractmethod
    def random(self, value: Any) -> Any:
        """Return moments as a value that the framework's programs compute with."""

    @abstractmethod
    def scaled_sum(self, terms: Array, site: Any) -> Array:
        """Return the sum of the terms [*batch] of a site, with its scale and mask."""

    @abstractmethod
    def has_same_scale(self, site: Any, other: Any) -> bool:
        """Return whether scale and mask of two sites are known to be equal."""

    @abstractmethod
    def divergence(self, site: Any, guide_site: Any) -> Array | None:
        """Return the divergence [*batch] from a certain Normal; None for others."""

    @abstractmethod
    def entropy(self, name: str, value: Any, guide_site: Any) -> Array:
        """Return −E_q[log q] of a guide's site, [*batch]."""

    def rule_terms(self, observed: Iterable[Any]) -> dict[str, Array]:
        """Return the terms of the rule book, by function and line, given the observed sites."""
        terms: dict[str, Any] = {}
        seen: set[int] = set()
        for site in self.with_moments(observed):
            for name, term in rule_terms(self.posteriors.random_parameters(site["fn"]), seen):
                sums, by_row = over_rows(term, tuple(site["fn"].batch_shape))
                term = self.scaled_sum(sums, site) if by_row else sums
                terms[name] = terms.get(name, 0.0) - term
        return terms

    def closed_latent_term(self, name: str, site: Any, guide_site: Any, sites: Sites) -> Array:
        """Return s_model E_q[log p] + s_guide H of one of the sites; −KL for equal scales."""
        if is_missing_part(name, sites):
            site = {**site, "missing": True}
        if (dropped := self.posteriors.dropout_posterior(guide_site["fn"])) is not None:
            return self._masked_term(name, site, guide_site, dropped)
        if (moments := self._moments_of_draw(name, site, guide_site)) is not None:
            with suppress(UnsupportedMoments):  # the term of the draw has the same mean
                return self._term(name, {**site, **moments}, {**guide_site, **moments})
        try:
            return self._term(name, site, guide_site)
        except UnsupportedMoments:
            if site.get("undrawn") is None:
                raise
        value = {"value": site["undrawn"].draw()}  # without a closed form: estimated by one draw
        return self._term(name, {**site, **value}, {**guide_site, **value})

    def _moments_of_draw(self, name: str, site: Any, guide_site: Any) -> dict[str, Any] | None:
        """Return what replaces the draw of a site whose term is the same for all draws of it."""
        posteriors, fn = self.posteriors, guide_site["fn"]
        drawn = not hasattr(posteriors.value(site["value"]), "sites") and "undrawn" not in site
        if not drawn or site.get("missing") or posteriors.gaussian_base(fn, True)[0] is None:
            return None
        if posteriors.random_parameters(fn) or posteriors.random_parameters(site["fn"]):
            return None
        value = posteriors.posterior_value(name, fn, propagation_of("full", "exact"))
        return {"value": self.random(value), "log_prob": None}

    def _term(self, name: str, site: Any, guide_site: Any) -> Array:
        same = self.has_same_scale(site, guide_site)
        if same and (divergence := self.divergence(site, guide_site)) is not None:
            return -self.scaled_sum(divergence, site)
        with at_site(name, site):
            log_prior = self.evaluate(name, site["fn"], self._prior_value(name, site, guide_site))
        entropy = self.entropy(name, site["value"], guide_site)
        if site.get("missing"):
            entropy = entropy_of_missing(self.posteriors, name, site, guide_site, entropy)
        if same:
            return self.scaled_sum(log_prior + entropy, site)
        return self.scaled_sum(log_prior, site) + self.scaled_sum(entropy, guide_site)

    def _prior_value(self, name: str, site: Any, guide_site: Any) -> Any:
        """Return a site's value; its moments if the prior has no density at draws."""
        improper = getattr(self.posteriors.without_wrappers(site["fn"]), "is_improper", False)
        if not improper or hasattr(self.posteriors.value(site["value"]), "gaussian"):
            return site["value"]
        flow = propagation_of("full", "exact")
        return self.posteriors.posterior_value(name, guide_site["fn"], flow)

    def _masked_term(self, name: str, site: Any, guide_site: Any, fn: Any) -> Array:
        """Return minus the divergence of a site with dropout masks, up to a constant."""
        value = self.posteriors.value(site["value"])
        with at_site(name, site):
            if isinstance(value, PendingWeight) and not value.is_used:
                raise masked_site_not_used(name)
            log_prior = self._masked_prior(name, site["fn"], fn)
        term = self.scaled_sum(log_prior, site)
        if fn.design.temperature is None:
            return term  # with fixed probabilities the entropy is constant
        masks = mc_dropout.masks_per_weight(tuple(fn.loc.shape), fn.design.axis, fn.design.noise)
        entropy = mc_dropout.mask_entropy(self.posteriors.value(fn.p)) * (
            masks * math.prod(fn.event_shape)
        )
        entropy = self.posteriors.broadcast(entropy, fn.batch_shape)
        return term + self.scaled_sum(entropy, guide_site)

    def _masked_prior(self, name: str, prior: Posterior, fn: Any) -> Array:
        """Return E_q[log p] of a site with dropout masks, up to a constant, [*batch]."""
        posteriors = self.posteriors
        if isinstance(prior, posteriors.wrappers):
            inner = self._masked_prior(name, prior.base_dist, fn)
            return posteriors.wrapped_terms(prior, inner)
        if getattr(prior, "has_pole", False) and fn.design.noise != "gaussian":
            raise infinite_at_zero(name, prior)
        certain = not (fn.design.learnt_prior or posteriors.random_parameters(prior))
        if isinstance(prior, posteriors.normals) and certain:
            return -mc_dropout.normal_divergence(fn.loc, fn.p, prior.loc, prior.scale * prior.scale)
        if hasattr(prior, "expected_log_prob"):  # one of the package's own priors
            return prior.expected_log_prob(fn.loc, fn.variance)
        if prior.event_dim:
            raise no_dropout_prior(name, prior)
        if fn.design.noise == "gaussian":
            flow = propagation_of("diagonal", "exact")
            return self.evaluate(
                name, prior, site_value(name, fn.loc, fn.variance, flow, event_dim=0)
            )
        points = mc_dropout.mask_values(fn.loc, fn.p)
        return sum(weight * self.evaluate(name, prior, value) for weight, value in points)

    def auxiliary_term(self, name: str, site: Any) -> Array:
        """Return the scaled entropy of a site that only the guide has."""
        return self.scaled_sum(self.entropy(name, site["value"], site), site)


@contextmanager
def at_site(name: str, site: Any) -> Iterator[None]:
    """Name the site and the user's line in errors of unsupported moments."""
    try:
        yield
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
