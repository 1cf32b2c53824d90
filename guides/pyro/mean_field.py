"""Define the mean-field Gaussian guide, the base class of the other guides."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from operator import attrgetter
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from pyro.infer.autoguide import AutoGuide
from pyro.infer.autoguide.initialization import InitMessenger
from pyro.infer.autoguide.utils import deep_setattr, helpful_support_errors
from pyro.nn import PyroModule, PyroParam
from pyro.ops.tensor_utils import periodic_repeat
from torch.distributions import biject_to

from guides.families.mean_field import LatentSite, checked_scale
from guides.pyro.supports import (
    OnSupport,
    check_fixed_supports,
    init_to_network,
    is_real,
    slope_sign,
)


class DVIGuide(AutoGuide):
    """Mean-field Gaussian guide for deterministic variational inference (DVI).

    It differs from ``AutoNormal`` in two ways: a site is one Normal (or its transform to
    the site's support) instead of an auxiliary Normal and a Delta, and the model may be
    given later: ``DVIGuide()`` is bound by the first ELBO it meets.

    Args:
        model: the Pyro model; by default that of the first evaluation.
        init_loc_fn: initial locations, a function of a site.
        init_scale: initial standard deviation of every component, on the unconstrained
            space. Small values matter: the default is far below usual priors.
        create_plates: optional function that makes the plates, as in Pyro's guides.

    Raises:
        ValueError: if ``init_scale`` is not positive.
        RuntimeError: when called without having met a model.

    Source: Wu et al. 2019; factorised posterior of section 2.

    Example:
        >>> guide = DVIGuide(init_scale=0.02)
    """

    def __init__(
        self,
        model: Callable | None = None,
        *,
        init_loc_fn: Callable = init_to_network,
        init_scale: float = 0.05,
        create_plates: Callable | None = None,
    ) -> None:
        scale = checked_scale(init_scale)
        super().__init__(model, create_plates=create_plates)
        self.init_loc_fn, self.init_scale = init_loc_fn, scale
        self._sites: tuple[LatentSite, ...] | None = None
        # arguments of load_state_dict, until the first call
        self._pending_state: tuple[Mapping[str, Any], tuple, dict] | None = None
        self._trained_names: tuple[str, ...] | None = None  # names of trained parameters

    def bind(self, model: Callable) -> None:
        """Bind the guide to a model unless it has one.

        Args:
            model: the Pyro model.
        """
        if self.model is None:
            self._model = (model,)

    def __getstate__(self) -> dict:
        """Pickle the parameters, not the model: it is bound again on first use."""
        state = self.__dict__.copy()
        state["_model"] = (None,)
        state["master"] = None  # Pyro's weak reference to a parent guide
        return state

    def __setstate__(self, state: dict) -> None:
        """Restore the parameters from a pickle."""
        self.__dict__.update(state)

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        if self.model is None:
            raise RuntimeError(
                f"{self._class_name}() has not met a model yet: pass {self._class_name}(model), "
                "call guide.bind(model), or evaluate an ELBO first"
            )
        nodes = self._trace_prototype(self.model, args, kwargs)
        check_fixed_supports(self.model, nodes, args, kwargs)
        self._inspect_model(self.model, nodes, args, kwargs)
        sites = tuple(self._add_parameters(name, site) for name, site in nodes.items())
        self._load_pending_state()
        self._sites = sites
        self._prototype_frames = OrderedDict(self._prototype_frames)
        self.prototype_trace = None  # free the data it refers to

    def _trace_prototype(self, model: Callable, args: tuple, kwargs: dict) -> dict[str, dict]:
        """Run the model from initial values; return its latent sites by name."""
        self._model = (InitMessenger(self._initial_value)(model),)
        try:
            super()._setup_prototype(*args, **kwargs)
        finally:
            self._model = (model,)
        self.locs, self.scales = PyroModule(), PyroModule()
        trace: Any = self.prototype_trace
        return {name: site for name, site in trace.iter_stochastic_nodes() if self._is_latent(name)}

    def _load_pending_state(self) -> None:
        if self._pending_state is not None:
            state, args, kwargs = self._pending_state
            super().load_state_dict(state, *args, **kwargs)
        self._pending_state = None

    @property
    def _class_name(self) -> str:
        return type(self).__name__

    def _inspect_model(
        self, model: Callable, sites: dict[str, dict], args: tuple, kwargs: dict
    ) -> None:
        """Hook for subclasses: inspect the model beyond its latent sites."""

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load parameters from :meth:`state_dict`, also before the guide has a model.

        Such a guide has no parameters before its first call; it loads these then, and
        treats the sites that have parameters as the latent ones.

        Args:
            state_dict: the parameters.
            *args: passed to :meth:`torch.nn.Module.load_state_dict`.
            **kwargs: passed to :meth:`torch.nn.Module.load_state_dict`.

        Raises:
            RuntimeError: if they are not those of the guide; at its first call, if it had
                none.
        """
        if self._sites is None:
            self._pending_state = state_dict, args, kwargs
            return torch.nn.Module().load_state_dict({})  # no keys are missing or unexpected
        return super().load_state_dict(state_dict, *args, **kwargs)

    def _initial_value(self, site: dict) -> Any:
        """Return a latent site's initial value; draw sites that training observed."""
        return self.init_loc_fn(site) if self._is_latent(site["name"]) else site["fn"].sample()

    def restore(self, parameters: Iterable[str]) -> None:
        """Treat only sites with a trained parameter as latent, unless sites are known.

        Without observations a guide cannot tell observed sites from latent ones.

        Args:
            parameters: names of trained parameters, as in Pyro's parameter store.
        """
        self._trained_names = tuple(parameters) if self._sites is None else None

    def _is_latent(self, site: str) -> bool:
        if self._trained_names is not None:
            return any(f".{name}".endswith(f".locs.{site}") for name in self._trained_names)
        return self._pending_state is None or f"locs.{site}_unconstrained" in self._pending_state[0]

    def _add_parameters(self, name: str, site: dict) -> LatentSite:
        value, support = site["value"].detach(), site["fn"].support
        with helpful_support_errors(site):
            loc = biject_to(support).inv(value).detach().clone()
        event_dim = site["fn"].event_dim + loc.dim() - value.dim()
        for frame in site["cond_indep_stack"]:
            full_size = frame.full_size or frame.size
            if full_size != frame.size:
                loc = periodic_repeat(loc, full_size, frame.dim - event_dim).contiguous()
        deep_setattr(self.locs, name, PyroParam(loc, constraints.real, event_dim))
        self._add_scale_parameters(name, loc, event_dim)
        plates = tuple(frame.name for frame in site["cond_indep_stack"] if frame.vectorized)
        return LatentSite(name, event_dim, support, plates)

    def _add_scale_parameters(self, name: str, loc: torch.Tensor, event_dim: int) -> None:
        """Create the scale of a site; subclasses may create another parameter instead."""
        scale = torch.full_like(loc, self.init_scale)
        positive = constraints.softplus_positive
        deep_setattr(self.scales, name, PyroParam(scale, positive, event_dim))

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Sample every latent site; the arguments are those of the model."""
        if self._sites is None:
            self._setup_prototype(*args, **kwargs)
        plates = self._create_plates(*args, **kwargs)
        result = {}
        for site in self._sites or ():
            with ExitStack() as stack:
                for plate in site.plates:
                    stack.enter_context(plates[plate])
                result[site.name] = pyro.sample(
                    site.name, self._posterior(site, *self._current_parameters(site.name))
                )
        return result

    def get_posterior(
        self, params: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, dist.TorchDistribution]:
        """Return the posterior of every latent site.

        Args:
            params: parameters of an earlier state, as ``fit`` returns them; by default
                the current ones.

        Returns:
            Distributions by site name, on the sites' supports; of all elements of the
            plates.
        """
        return {
            site.name: self._posterior(site, *self._parameters_from(site.name, params))
            for site in self._known_sites()
        }

    def _parameters_from(self, site: str, params: Mapping[str, torch.Tensor] | None) -> tuple:
        if params is None:
            return self._current_parameters(site)
        value_by_suffix = {f".{name}": value for name, value in params.items()}
        return tuple(
            next(value for key, value in value_by_suffix.items() if key.endswith(f".{name}"))
            for name in self._parameter_names(site)
        )

    def _parameter_names(self, site: str) -> tuple[str, ...]:
        """Return the dotted names of a site's parameters."""
        return f"locs.{site}", f"scales.{site}"

    def _posterior(
        self, site: LatentSite, loc: torch.Tensor, scale: torch.Tensor
    ) -> dist.TorchDistribution:
        base = dist.Normal(loc, scale).to_event(site.event_dim)
        if is_real(site.support):
            return base
        return OnSupport(base, biject_to(site.support).with_cache()).with_support(site.support)

    def _current_parameters(self, site: str) -> tuple[Any, ...]:
        return tuple(attrgetter(name)(self) for name in self._parameter_names(site))

    @torch.no_grad()
    def sample_posterior(self, num_samples: int = 1) -> dict[str, torch.Tensor]:
        """Draw from the posterior.

        Args:
            num_samples: number of draws.

        Returns:
            Tensors [num_samples, ...] by site name, on the sites' supports.
        """
        posteriors = self.get_posterior().items()
        return {name: posterior.rsample((num_samples,)) for name, posterior in posteriors}

    @torch.no_grad()
    def median(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        """Return posterior medians by site name; arguments are ignored, as in Pyro's guides."""
        return {
            site.name: biject_to(site.support)(self._current_parameters(site.name)[0].clone())
            for site in self._known_sites()
        }

    @torch.no_grad()
    def quantiles(
        self, quantiles: Sequence[float], *args: Any, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        """Return posterior quantiles.

        Args:
            quantiles: probabilities between 0 and 1.
            *args: ignored, as in Pyro's guides.
            **kwargs: ignored.

        Returns:
            Tensors [len(quantiles), ...] by site name, on the sites' supports.
        """
        return {site.name: self._quantiles(site, quantiles) for site in self._known_sites()}

    def _quantiles(self, site: LatentSite, quantiles: Sequence[float]) -> torch.Tensor:
        loc, scale = self._marginal(site.name)
        levels = torch.as_tensor(quantiles, dtype=loc.dtype, device=loc.device)
        levels = levels.reshape((-1,) + (1,) * loc.dim())
        transform = biject_to(site.support)
        levels = torch.where(slope_sign(transform) < 0, 1 - levels, levels)
        return transform(dist.Normal(loc, scale).icdf(levels))

    def _marginal(self, site: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the locations and standard deviations of a site's components."""
        loc, scale = self._current_parameters(site)
        return loc, scale

    def _known_sites(self) -> tuple[LatentSite, ...]:
        if self._sites is None:
            raise RuntimeError(f"{self._class_name} has no parameters yet: evaluate an ELBO first")
        return self._sites
