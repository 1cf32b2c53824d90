"""Define the Gaussian guide with covariances between all sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.util import sum_rightmost
from numpyro.infer.util import log_density

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.private_apis import is_traced
from moment_guides.families.arrow import random_point, with_plates
from moment_guides.families.gaussian import LatentVector, check_whole_plates
from moment_guides.families.gaussian_parameters import GaussianParameters
from moment_guides.families.mean_field import LatentSite, with_known_options
from moment_guides.families.plate_normal import PlateNormalBase
from moment_guides.numpyro.latent_sites import ModelTrace, init_to_network, is_real
from moment_guides.numpyro.mean_field import DVIGuide
from moment_guides.numpyro.scales import FastMultivariateNormal, in_enabled_precision


class PlateNormal(PlateNormalBase, Distribution):
    """A Normal of blocks that are independent, or a chain, given what they share."""

    arg_constraints: dict = {}  # noqa: RUF012 (NumPyro's own convention)
    support = constraints.real_vector
    pytree_data_fields = ("loc", "scale", "factor")
    pytree_aux_fields = ("vector",)
    reparametrized_params = ["loc", "scale", "factor"]  # noqa: RUF012

    def __init__(self, loc: Any, scale: Any, factor: Any, vector: LatentVector) -> None:
        self.loc, self.scale, self.factor, self.vector = loc, scale, factor, vector
        super().__init__((), jnp.shape(loc), validate_args=False)

    @property
    def parameters(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return location, scale and factor."""
        return jnp.asarray(self.loc), jnp.asarray(self.scale), jnp.asarray(self.factor)

    @property
    def has_rsample(self) -> bool:
        """Return True: draws are differentiable in all parameters."""
        return True

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Return reparameterised draws [*sample_shape, d]."""
        shape = (*sample_shape, *self.event_shape)
        return self.image(jax.random.normal(key, shape, jnp.result_type(self.loc)))


class GaussianGuide(DVIGuide):
    """Gaussian guide with the covariances of all sites, on the unconstrained space.

    It is one Gaussian N(m, L Lᵀ) over all d components of all sites, for regressions and
    hierarchies: where components depend on each other, as intercepts and slopes, or the
    scale of a hierarchy and its effects, ``DVIGuide`` misplaces means, too. Its factor L =
    diag(s) U has the standard deviations s of each component given those before it, and a
    unit lower triangular U, at first the identity. ``fit(..., method="newton")`` trains it
    by its natural parameters, in 5 to 25 steps; the other methods train s and U.

    Of more than 500 components it keeps what the posterior of a hierarchy or of a series has:
    elements of a plate, or of a vector, are blocks that are independent given the rest, or a
    chain, each leaning on the one before. Which ones are follows from second derivatives of log p
    at a random point, so that no such covariance is lost: 2000 effects of groups end where all
    covariances together do, in 3 s (Pyro) and 10 s (NumPyro, compiled), and so do levels of
    a walk where the model states what each differs from the one before by.

    Args:
        model: the NumPyro model; by default that of the first evaluation.
        init_loc_fn: initial locations, a function of a site.
        init_scale: initial standard deviation of every component, on the unconstrained
            space. From small ones the scale of a hierarchy follows effects that are all near
            zero, and comes back from there in many steps.
        create_plates: optional function that makes the plates, as in NumPyro's guides.
        prefix: part of the parameters' names, as in NumPyro's guides.

    Raises:
        ValueError: if ``init_scale`` is not positive.
        RuntimeError: when called without having met a model.
        UnsupportedMoments: when called, if the model has more than 500 components besides
            elements of plates that are independent, or a chain, given them, or latent sites in a
            plate that draws a subsample.

    Source: Opper and Archambeau 2009, The variational Gaussian approximation revisited.

    Example:
        >>> guide = GaussianGuide(init_scale=0.1)
    """

    vector = LatentVector((), ())  # of no sites, before it has met a model

    @with_known_options
    def __init__(
        self,
        model: Callable | None = None,
        *,
        init_loc_fn: Callable = init_to_network,
        init_scale: float = 0.3,
        create_plates: Callable | None = None,
        prefix: str = "auto",
    ) -> None:
        super().__init__(
            model,
            init_loc_fn=init_loc_fn,
            init_scale=init_scale,
            create_plates=create_plates,
            prefix=prefix,
        )

    def _inspect_model(self, model: Callable, run: ModelTrace, args: tuple, kwargs: dict) -> None:
        full, frames = run.plate_sizes, run.frames
        check_whole_plates(
            [
                (site.name, [(plate, full[plate], frames[plate].size) for plate in site.plates])
                for site in run.sites
            ]
        )
        shapes = [jnp.shape(run.location(site.name)) for site in run.sites]
        vector = LatentVector(tuple(site.name for site in run.sites), tuple(shapes))
        if (vector.names, vector.shapes) == (self.vector.names, self.vector.shapes):
            return  # an abstract run could not look for plates again
        assert self.model is not None
        products = _products(self.model, run, vector, args, kwargs)
        axes = [
            _axes(site, shape, jnp.shape(run.trace[site.name]["value"]), frames)
            for site, shape in zip(run.sites, shapes, strict=True)
        ]
        self.vector = with_plates(vector, axes, products)

    def _sampled(
        self, sites: Sequence[LatentSite], plates: Mapping[str, Any], initial: Callable
    ) -> dict[str, Any]:
        """Sample the vector, and from it every latent site."""
        locs, scales = zip(*(self._declare(site, initial) for site in sites), strict=True)
        factor = numpyro.param(
            self._name("", "factor"), np.zeros(self.vector.factor_size), event_dim=1
        )
        posterior = self._joint(_joined(locs), _joined(scales), in_enabled_precision(factor))
        name = f"_{self.prefix}_latent"
        latent = numpyro.sample(name, posterior, infer={"is_auxiliary": True})
        result = {}
        for site, free in self._parts(latent, sites):
            with ExitStack() as stack:
                for plate in site.plates:
                    stack.enter_context(plates[plate])
                result[site.name] = numpyro.sample(site.name, _on_support(site, free))
        return result

    def _joint(self, loc: Any, scale: Any, factor: Any) -> dist.MultivariateNormal | PlateNormal:
        if self.vector.plates:
            return PlateNormal(loc, scale, factor, self.vector)
        rows, columns = np.tril_indices(len(loc), -1)
        unit: Any
        if any(map(is_traced, (loc, scale, factor))):
            unit = jnp.eye(len(loc), dtype=loc.dtype).at[rows, columns].set(factor)
        else:  # NumPy needs no compilation
            loc, scale = np.asarray(loc), np.asarray(scale)
            unit = np.eye(len(loc), dtype=loc.dtype)
            unit[rows, columns] = factor
        return FastMultivariateNormal(loc, scale[:, None] * unit)

    def _parts(self, latent: Any, sites: Sequence[LatentSite]) -> Iterator[tuple[LatentSite, Any]]:
        """Return every site with its unconstrained value, of a vector [..., d]."""
        parts = self.vector.split(latent)
        for site in sites:
            yield site, parts[site.name]

    def get_posterior(self, params: dict[str, jax.Array]) -> dist.MultivariateNormal | PlateNormal:
        """Return the joint posterior of the unconstrained values, as one vector."""
        _, locs, scales = zip(*self._parameters(params), strict=True)
        return self._joint(_joined(locs), _joined(scales), params[self._name("", "factor")])

    def from_mean_field(
        self, params: Mapping[str, Any], own: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return a mean field's parameters with the factor of the own ones, others as they are."""
        factor = self._name("", "factor")
        return {factor: own[factor], **params}

    def gaussian_parameters(self, sizes: Mapping[str, int]) -> GaussianParameters:
        """Return where the Gaussian's parameters are in a vector of all, from their sizes."""
        names = [site.name for site in self._known_sites()]
        locs, scales = ([self._name(name, role) for name in names] for role in ("loc", "scale"))
        return GaussianParameters.of_sites(
            self.vector, sizes, locs, scales, self._name("", "factor")
        )

    def _draws(
        self, rng_key: jax.Array, params: dict[str, jax.Array], shape: tuple[int, ...]
    ) -> dict[str, jax.Array]:
        draws = self.get_posterior(params).sample(rng_key, shape)
        parts = self._parts(draws, self._known_sites())
        return {site.name: biject_to(site.support)(free) for site, free in parts}

    def _marginals(
        self, params: dict[str, jax.Array]
    ) -> list[tuple[LatentSite, jax.Array, jax.Array]]:
        posterior = self.get_posterior(params)
        scale = jnp.sqrt(posterior.variance)
        sites = self._known_sites()
        pairs = zip(self._parts(posterior.loc, sites), self._parts(scale, sites), strict=True)
        return [(site, loc, part) for (site, loc), (_, part) in pairs]


def _axes(
    site: LatentSite, shape: tuple[int, ...], of_value: tuple[int, ...], frames: Mapping[str, Any]
) -> list[tuple[str, int]]:
    """Return the plates around a site, and their axes of its unconstrained value."""
    if biject_to(site.support).domain.event_dim > site.event_dim or len(shape) != len(of_value):
        return []
    first = len(shape) - site.event_dim
    axes = [(name, first + frames[name].dim) for name in site.plates]
    return axes if axes or not shape else [(f"of {shape[0]} elements", 0)]


def _products(
    model: Callable, run: ModelTrace, vector: LatentVector, args: tuple, kwargs: dict
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that multiplies rows by second derivatives of log p at a random point."""
    transforms = {site.name: biject_to(site.support) for site in run.sites}
    point = random_point(vector)

    def log_density_at(point: jax.Array) -> jax.Array:
        values = {name: transforms[name](free) for name, free in vector.split(point).items()}
        with handlers.block():
            return log_density(handlers.seed(model, 0), args, kwargs, values)[0]

    @jax.jit
    def product(row: jax.Array) -> jax.Array:
        return jax.jvp(jax.grad(log_density_at), (jnp.asarray(point),), (row,))[1]

    def products(rows: np.ndarray) -> np.ndarray:
        with jax.ensure_compile_time_eval():  # if the program is only looked at
            images = [product(jnp.asarray(row)) for row in rows]
        if any(map(is_traced, images)):
            raise UnsupportedMoments(
                f"the plates of {vector.size} coordinates cannot be looked for inside a function "
                "that JAX transforms",
                sites=vector.names,
                remedy="call svi.init, or fit, outside of it",
            )
        return np.stack([np.asarray(image) for image in images])

    return products


def _joined(parts: Sequence[Any]) -> Any:
    numbers = jnp if any(map(is_traced, parts)) else np  # NumPy needs no compilation
    return numbers.concatenate([numbers.ravel(in_enabled_precision(part)) for part in parts])


def _on_support(site: LatentSite, free: Any) -> dist.Delta:
    """Return the site at an unconstrained value, with the log-determinant of its transform."""
    if is_real(site.support):
        return dist.Delta(free, event_dim=site.event_dim)
    transform = biject_to(site.support)
    value = transform(free)
    event_dim = site.event_dim + jnp.ndim(value) - jnp.ndim(free)
    log_density = -transform.log_abs_det_jacobian(free, value)
    log_density = sum_rightmost(log_density, jnp.ndim(log_density) - jnp.ndim(value) + event_dim)
    return dist.Delta(value, log_density=log_density, event_dim=event_dim)
