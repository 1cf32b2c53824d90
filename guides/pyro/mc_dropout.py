"""Define the dropout guide, the distribution of its weights, and which sites it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions import TorchDistribution, constraints
from pyro.infer.autoguide.utils import deep_setattr
from pyro.nn import PyroModule, PyroParam
from torch.distributions import biject_to
from torch.overrides import TorchFunctionMode

from moment_guides.families import mc_dropout
from moment_guides.families.mc_dropout import (
    DroppedWeightBase,
    WeightSites,
    bounded_site_error,
    prior_scale,
)
from moment_guides.families.mean_field import FixedSettings, LatentSite, with_known_options
from moment_guides.pyro.mean_field import DVIGuide, init_to_network, is_real


def _functions(*names: str) -> set[Callable]:
    owners = (torch, torch.Tensor, torch.nn.functional)
    return {getattr(o, name) for o in owners for name in names if hasattr(o, name)}


_MOVES = _functions(*"t transpose swapaxes swapdims permute movedim moveaxis adjoint".split())
_MOVES |= {getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH")}
_SAME = _functions(*"clone contiguous to type_as float double half bfloat16 cpu".split())
_PRODUCTS = _functions(*"matmul __matmul__ mm mv dot".split())
_REVERSED = _functions("__rmatmul__")
_ADDED = _functions("addmm", "addmv")


def weights_of(
    model: Callable, sites: Mapping[str, dict], args: tuple, kwargs: dict
) -> WeightSites:
    """Run a model to find which of its latent ``sites`` linear maps contract."""
    values = {name: site["value"].detach().clone() for name, site in sites.items()}
    for value in values.values():
        value.requires_grad_(value.is_floating_point())
    spy = _Contractions(values)
    with torch.enable_grad(), poutine.block(), spy:
        trace = poutine.trace(poutine.condition(model, data=values)).get_trace(*args, **kwargs)
    nodes: Any = trace.nodes
    scales = {name: prior_scale(nodes[name]["fn"]) for name in sites}
    learnt = (name for name, scale in scales.items() if getattr(scale, "requires_grad", False))
    return WeightSites(spy.contracted_axes, frozenset(learnt))


class _Contractions(TorchFunctionMode):
    """Mode of torch that follows values of sites through moves to contractions."""

    def __init__(self, sites: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.contracted_axes: dict[str, int] = {}
        # By id: the tensor, kept so that its id is not reused, the site, and which of the
        # site's own axes is at each place.
        self.known = {
            id(value): (value, name, tuple(range(-value.dim(), 0))) for name, value in sites.items()
        }

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for operand, axis in _contracted(func, args, kwargs):
            if (known := self.known.get(id(operand))) is not None:
                self.contracted_axes.setdefault(known[1], known[2][axis])
        source = self.known.get(id(args[0])) if args else None
        if source is not None and (func in _SAME or func in _MOVES):
            _, name, order = source
            if func in _MOVES:
                order = tuple(
                    order[dimension] for dimension in _order(func, len(order), args[1:], kwargs)
                )
            self.known[id(result)] = result, name, order
        return result


def _order(func: Callable, rank: int, rest: tuple, kwargs: dict) -> list[int]:
    """Return the old axis at each new place, by an array of distinct sizes."""
    moved = func(torch.empty(tuple(range(1, rank + 1)), device="meta"), *rest, **kwargs)
    return [size - 1 for size in moved.shape]


def _contracted(func: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[Any, int]]:
    """Yield the operands of a contraction of one axis, each with that axis (negative)."""
    if func is torch.nn.functional.linear:
        yield (args[1] if len(args) > 1 else kwargs["weight"]), -1
    elif func in _PRODUCTS or func in _REVERSED or func in _ADDED:
        operands = [*args, *kwargs.values()][func in _ADDED :][:2]
        left, right = operands[::-1] if func in _REVERSED else operands
        yield left, -1
        yield right, -min(getattr(right, "ndim", 0), 2)
    elif func is torch.einsum and args and isinstance(args[0], str):
        yield from _einsum_operands(args)
    elif func is torch.tensordot:
        yield from _tensordot(*args, **kwargs)


def _einsum_operands(args: tuple) -> Iterator[tuple[Any, int]]:
    operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
    inputs, _, result = args[0].replace(" ", "").partition("->")
    letters = inputs.split(",")
    if len(operands) != 2 or "." in inputs:
        return
    shared = [name for name in letters[0] if name in letters[1] and name not in result]
    if len(shared) == 1:
        for operand, names in zip(operands, letters, strict=True):
            yield operand, names.index(shared[0]) - len(names)


def _tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Iterator[tuple[Any, int]]:
    if dims == 1:
        dims = [[a.dim() - 1], [0]]
    if not isinstance(dims, int) and len(dims[0]) == 1:
        for operand, (axis,) in ((a, dims[0]), (b, dims[1])):
            yield operand, axis if axis < 0 else axis - operand.dim()


class DroppedWeight(DroppedWeightBase, TorchDistribution):
    """M diag(z) with an inverted mask z over the inputs, for M = loc; it has no density.

    All rows of the inputs share the one mask of a draw. Propagated moments and draws have
    a mask for every row instead: the marginals of each row are the same.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    has_rsample = True

    def __init__(
        self,
        loc: torch.Tensor,
        p: torch.Tensor,
        design: mc_dropout.MaskedSite,
    ) -> None:
        self.loc, self.p, self.design = loc, p, design
        split = loc.dim() - design.event_dim
        super().__init__(loc.shape[:split], loc.shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    def expand(self, batch_shape: Any, _instance: Any = None) -> DroppedWeight:
        """Return the same distribution with another batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        return DroppedWeight(self.loc.expand(shape), self.p, self.design)

    def noise(self, shape: Any) -> torch.Tensor:
        """Return independent noise z of mean 1, e.g. [rows, in] for a mask in every row."""
        options: Any = {"dtype": self.loc.dtype, "device": self.loc.device}
        if self.design.noise == "gaussian":
            return mc_dropout.gaussian(torch.randn(shape, **options), self.p)
        uniform = torch.rand(shape, **options)
        if self.design.temperature is None:
            return mc_dropout.bernoulli(uniform, self.p)
        tiny = torch.finfo(uniform.dtype).eps
        return mc_dropout.relaxed(uniform.clamp(tiny, 1 - tiny), self.p, self.design.temperature)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Draw weights, one mask per draw, differentiable in M and p of relaxed masks."""
        return self.loc * self.noise(torch.Size(sample_shape) + torch.Size(self.mask_shape))


class MCDropoutGuide(FixedSettings, DVIGuide):
    """Dropout as a posterior: weights M diag(z) with a mask z of their inputs for every datum.

    Args:
        model: the Pyro model; by default that of the first evaluation.
        p: probability to drop an input, as in the host's dropout layers: of all weights
            that the model contracts with an input, or of sites by name.
        noise: ``"bernoulli"``, ``"gaussian"`` (of the same mean and variance), or
            ``"dropconnect"``, a Bernoulli mask for each weight.
        others: what the sites are that are not masked, biases among them: ``"point"``
            estimates, or Gaussian, ``"mean_field"``.
        learn_p: whether the probabilities are parameters, one for each masked site, that
            begin at ``p``; the entropy of the masks is then part of the divergence.
        temperature: of the relaxed masks that are drawn where the probabilities are
            learnt.
        init_loc_fn: initial locations, a function of a site.
        init_scale: initial standard deviations, where ``others="mean_field"``.
        create_plates: optional function that makes the plates, as in Pyro's guides.

    Noise is inverted: M is the mean of q. Which sites are weights, and on which axis
    their inputs are, is found in a run of the model: a site is one if a linear map
    (``F.linear``, ``x @ w``, an Einstein sum) contracts it along one axis; a kernel of a
    convolution is none. Every datum has a mask of its own: the rows of the inputs are
    elements of the plates around what is observed (or, without a plate, of its axes), and
    other rows, or more than one axis of them, are refused.

    Functions of a map of at most three certain inputs are summed over all of their masks,
    exactly where covariances are full; a map of more inputs, or of random ones, is taken
    as Gaussian.

    Covariances are carried backward by default: masks make the units of the first layer
    dependent, and a step of 13-50-2 then takes a fifth (Pyro) to a fiftieth (NumPyro) of
    one with full covariances. Rare masks are no Gaussian: trained so on the set yacht with
    a random scale of the noise, the loss is 14.9, by full covariances 19.2, by 2000 masks
    693; trained by diagonal ones it is −243, where masks have 9097.

    The divergence from Normal priors N(0, λ) is ‖M‖²/(2kλ) for every masked site, k = 1 −
    p, but for a constant, as a discrete q has none. Priors of which the scale is learnt
    or random, and others than Normal ones, enter by E_q[log p], exactly.

    A guide by dropout has no density: ELBOs by log densities refuse it. Draws of the host
    (``sample_posterior``, ``Predictive``, ``sample_sites``) have one mask for all rows:
    each row is right, what mixes rows is not. ``propagation="sampled"`` draws a mask for
    each row, the same in all maps of one site.

    Raises:
        ValueError: if an option is unknown, or ``p``, ``init_scale`` or ``temperature``
            out of range.
        RuntimeError: when called without having met a model.
        UnsupportedMoments: when called, if there is no site to mask, or ``p`` names one
            that is none.

    Source: Gal and Ghahramani 2016; Li and Gal 2017, sections 2.3 and 3.

    Example:
        >>> guide = MCDropoutGuide(p=0.2)
    """

    default_covariance = "backward"
    why_no_prior = "has no density"  # why prior=... raises an error

    @with_known_options
    def __init__(
        self,
        model: Callable | None = None,
        p: float | Mapping[str, float] = 0.1,
        *,
        noise: str = "bernoulli",
        others: str = "point",
        learn_p: bool = False,
        temperature: float = mc_dropout.TEMPERATURE,
        init_loc_fn: Callable = init_to_network,
        init_scale: float = 0.05,
        create_plates: Callable | None = None,
    ) -> None:
        options = mc_dropout.DropoutOptions(p, noise, others, learn_p, temperature)
        super().__init__(
            model, init_loc_fn=init_loc_fn, init_scale=init_scale, create_plates=create_plates
        )
        self.options = options
        self._weights = mc_dropout.WeightSites({}, frozenset())
        self._rates: dict[str, float] = {}

    @property
    def masked(self) -> dict[str, float]:
        """Return the dropout probability of every masked site; the initial one if it is learnt."""
        return dict(self._rates)

    def _inspect_model(
        self, model: Callable, sites: dict[str, dict], args: tuple, kwargs: dict
    ) -> None:
        self._weights = weights_of(model, sites, args, kwargs)
        self._rates = self.options.rates(self._weights.axes, sites)
        self.probs = PyroModule()
        for name in self._rates:
            if not is_real(sites[name]["fn"].support):
                raise bounded_site_error(name)

    def _add_scale_parameters(self, name: str, loc: torch.Tensor, event_dim: int) -> None:
        """Create the learnt probability of a masked site, or a Gaussian's scale."""
        if name not in self._rates:
            if self.options.others == "mean_field":
                super()._add_scale_parameters(name, loc, event_dim)
        elif self.options.learn_p:
            rate = PyroParam(_like(loc, self._rates[name]), constraints.unit_interval, 0)
            deep_setattr(self.probs, name, rate)

    def _has_scale(self, site: str) -> bool:
        return self.options.others == "mean_field" and site not in self._rates

    def _parameter_names(self, site: str) -> tuple[str, ...]:
        if self._has_scale(site):
            return super()._parameter_names(site)
        learnt = site in self._rates and self.options.learn_p
        return (f"locs.{site}", f"probs.{site}") if learnt else (f"locs.{site}",)

    def _posterior(
        self, site: LatentSite, loc: torch.Tensor, scale: Any = None
    ) -> dist.TorchDistribution:
        options = self.options
        if site.name in self._rates:
            p = _like(loc, self._rates[site.name]) if scale is None else scale
            design = options.design(site.name, site.event_dim, self._weights)
            return DroppedWeight(loc, p, design)
        if self._has_scale(site.name):
            return super()._posterior(site, loc, scale)
        value = biject_to(site.support)(loc)
        return dist.Delta(value, event_dim=site.event_dim + value.dim() - loc.dim())

    def median(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        """Return posterior medians by site name; for masked sites the mean M, as without dropout.

        Args:
            *args: ignored, as in Pyro's guides.
            **kwargs: ignored.
        """
        return super().median(*args, **kwargs)

    def _quantiles(self, site: LatentSite, quantiles: Sequence[float]) -> torch.Tensor:
        if self._has_scale(site.name):
            return super()._quantiles(site, quantiles)
        posterior: Any = self._posterior(site, *self._current_parameters(site.name))
        shape = posterior.batch_shape + posterior.event_shape
        options = {"dtype": posterior.mean.dtype, "device": posterior.mean.device}
        levels = torch.as_tensor(quantiles, **options).reshape((-1,) + (1,) * len(shape))
        levels = levels.expand(-1, *shape)
        masked = isinstance(posterior, DroppedWeight)
        return posterior.icdf(levels) if masked else posterior.v.expand(levels.shape)


def _like(loc: torch.Tensor, number: float) -> torch.Tensor:
    """Return a number as a scalar tensor of the dtype and device of ``loc``."""
    return torch.full((), number, dtype=loc.dtype, device=loc.device)
