"""Define the Gaussian guide with covariances between all sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions import TorchDistribution, constraints
from pyro.distributions.util import sum_rightmost
from pyro.nn import PyroParam
from torch.distributions import biject_to

from moment_guides.families.arrow import random_point, with_plates
from moment_guides.families.gaussian import LatentVector, check_whole_plates
from moment_guides.families.gaussian_parameters import GaussianParameters
from moment_guides.families.mean_field import LatentSite, with_known_options
from moment_guides.families.plate_normal import PlateNormalBase
from moment_guides.pyro.mean_field import DVIGuide, init_to_network


class PlateNormal(PlateNormalBase, TorchDistribution):
    """A Normal of blocks that are independent, or a chain, given what they share."""

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: torch.Tensor, scale: torch.Tensor, factor: torch.Tensor, vector: LatentVector
    ) -> None:
        self.loc, self.scale, self.factor, self.vector = loc, scale, factor, vector
        super().__init__(torch.Size(), loc.shape, validate_args=False)

    @property
    def parameters(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return location, scale and factor."""
        return self.loc, self.scale, self.factor

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Return reparameterised draws [*sample_shape, d]."""
        shape = torch.Size(sample_shape) + self.loc.shape
        return self.image(torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device))


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
        model: the Pyro model; by default that of the first evaluation.
        init_loc_fn: initial locations, a function of a site.
        init_scale: initial standard deviation of every component, on the unconstrained
            space. From small ones the scale of a hierarchy follows effects that are all near
            zero, and comes back from there in many steps.
        create_plates: optional function that makes the plates, as in Pyro's guides.

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

    @with_known_options
    def __init__(
        self,
        model: Callable | None = None,
        *,
        init_loc_fn: Callable = init_to_network,
        init_scale: float = 0.3,
        create_plates: Callable | None = None,
    ) -> None:
        super().__init__(
            model,
            init_loc_fn=init_loc_fn,
            init_scale=init_scale,
            create_plates=create_plates,
        )

    factor: Any  # elements of U below its diagonal, row by row

    def _inspect_model(
        self, model: Callable, sites: dict[str, dict], args: tuple, kwargs: dict
    ) -> None:
        frames = {name: site["cond_indep_stack"] for name, site in sites.items()}
        check_whole_plates([(name, [*map(_sizes, stack)]) for name, stack in frames.items()])
        shapes = [
            tuple(biject_to(site["fn"].support).inverse_shape(site["value"].shape))
            for site in sites.values()
        ]
        vector = LatentVector(tuple(sites), tuple(shapes))
        products = _products(model, sites, vector, args, kwargs)
        axes = [_axes(site, shape) for site, shape in zip(sites.values(), shapes, strict=True)]
        self.vector = with_plates(vector, axes, products)
        like = next(site["value"] for site in sites.values()).detach()
        self.factor = PyroParam(like.new_zeros(self.vector.factor_size), event_dim=1)

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Sample the vector and from it every latent site; arguments are those of the model."""
        if self._sites is None:
            self._setup_prototype(*args, **kwargs)
        name = f"_{self._pyro_name}_latent"
        latent = pyro.sample(name, self.get_posterior(), infer={"is_auxiliary": True})
        plates = self._create_plates(*args, **kwargs)
        result = {}
        for site, free in self._parts(latent):
            with ExitStack() as stack:
                for plate in site.plates:
                    stack.enter_context(plates[plate])
                result[site.name] = pyro.sample(site.name, _on_support(site, free))
        return result

    def get_posterior(
        self, params: Mapping[str, torch.Tensor] | None = None
    ) -> dist.MultivariateNormal | PlateNormal:
        """Return the joint posterior of the unconstrained values, as one vector."""
        loc, scale = self._vectors(params)
        factor = self.factor if params is None else params[_name_ending(params, "factor")]
        if self.vector.plates:
            return PlateNormal(loc, scale, factor, self.vector)
        below = torch.tril_indices(self.vector.size, self.vector.size, -1, device=loc.device)
        unit = torch.eye(self.vector.size, dtype=loc.dtype, device=loc.device)
        unit = unit.index_put((below[0], below[1]), factor)
        return dist.MultivariateNormal(loc, scale_tril=scale[:, None] * unit, validate_args=False)

    def _vectors(self, params: Mapping[str, torch.Tensor] | None) -> Iterator[torch.Tensor]:
        """Return the locations and conditional standard deviations of all components."""
        sites = [self._parameters_from(site.name, params) for site in self._known_sites()]
        for parts in zip(*sites, strict=True):
            yield torch.cat([part.reshape(-1) for part in parts])

    def _parts(self, latent: torch.Tensor) -> Iterator[tuple[LatentSite, torch.Tensor]]:
        """Return every site with its unconstrained value, of a vector [..., d]."""
        parts = self.vector.split(latent)
        for site in self._known_sites():
            yield site, parts[site.name]

    def from_mean_field(
        self, params: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        """Return a mean field's parameters of the same sites under the names of the own ones.

        Others are returned as they are.
        """
        if not len(params) < len(own):
            return params
        renamed = dict(params)
        for part in chain.from_iterable(map(self._parameter_names, self.vector.names)):
            theirs = _name_ending(renamed, part)
            if theirs is None:
                return params
            renamed[_name_ending(own, part)] = renamed.pop(theirs)
        factor = _name_ending(own, "factor")
        return {factor: own[factor], **renamed}

    def gaussian_parameters(self, sizes: Mapping[str, int]) -> GaussianParameters:
        """Return where the Gaussian's parameters are in a vector of all, from their sizes."""
        find = partial(_name_ending, sizes)
        names = [self._parameter_names(site.name) for site in self._known_sites()]
        locs, scales = ([*map(find, part)] for part in zip(*names, strict=True))
        return GaussianParameters.of_sites(self.vector, sizes, locs, scales, find("factor"))

    def _draws(self, num_samples: int) -> dict[str, torch.Tensor]:
        draws = self.get_posterior().sample((num_samples,))
        return {site.name: biject_to(site.support)(free) for site, free in self._parts(draws)}

    def _marginal(self, site: str) -> tuple[torch.Tensor, torch.Tensor]:
        posterior = self.get_posterior()
        loc, scale = posterior.loc, posterior.variance.sqrt()
        pairs = zip(self._parts(loc), self._parts(scale), strict=True)
        return next((a, b) for (at, a), (_, b) in pairs if at.name == site)


def _axes(site: dict, shape: tuple[int, ...]) -> list[tuple[str, int]]:
    """Return the plates around a site, and their axes of its unconstrained value."""
    support = site["fn"].support
    if biject_to(support).domain.event_dim > site["fn"].event_dim or len(shape) != len(
        site["value"].shape
    ):
        return []
    first = len(shape) - site["fn"].event_dim
    axes = [(frame.name, first + frame.dim) for frame in site["cond_indep_stack"] if frame.dim]
    return axes if axes or not shape else [(f"of {shape[0]} elements", 0)]


def _products(
    model: Callable, sites: dict[str, dict], vector: LatentVector, args: tuple, kwargs: dict
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that multiplies rows by second derivatives of log p at a random point."""
    transforms = {name: biject_to(site["fn"].support) for name, site in sites.items()}
    like = next(site["value"] for site in sites.values()).detach()

    @torch.enable_grad()
    def products(rows: np.ndarray) -> np.ndarray:
        vectors = np.vstack([random_point(vector), *rows])
        point, *directions = torch.as_tensor(vectors, dtype=like.dtype, device=like.device)
        point.requires_grad_()
        values = {name: transforms[name](free) for name, free in vector.split(point).items()}
        with torch.random.fork_rng(devices=[]), poutine.block():
            conditioned = poutine.condition(model, data=values)
            trace = poutine.trace(conditioned).get_trace(*args, **kwargs)
        log_density: Any = trace.log_prob_sum()
        (slope,) = torch.autograd.grad(log_density, point, create_graph=True)
        images = [
            torch.autograd.grad(slope, point, direction, retain_graph=True)[0]
            for direction in directions
        ]
        return torch.stack(images).cpu().numpy()

    return products


def _sizes(frame: Any) -> tuple[str, int, int]:
    return frame.name, frame.full_size or frame.size, frame.size


def _name_ending(params: Mapping[str, Any], name: str) -> Any:
    """Return the name of a parameter without the names of guides around it; None if unknown."""
    names = [key for key in params if f".{key}".endswith(f".{name}")]
    return min(names, key=len, default=None)  # a site may have the same name


def _on_support(site: LatentSite, free: torch.Tensor) -> dist.Delta:
    """Return the site at an unconstrained value, with the log-determinant of its transform."""
    transform = biject_to(site.support)
    value = transform(free)
    event_dim = site.event_dim + value.dim() - free.dim()
    if poutine.get_mask() is False:
        return dist.Delta(value, event_dim=event_dim)
    log_density = transform.inv.log_abs_det_jacobian(value, free)
    log_density = sum_rightmost(log_density, log_density.dim() - value.dim() + event_dim)
    return dist.Delta(value, log_density=log_density, event_dim=event_dim)
