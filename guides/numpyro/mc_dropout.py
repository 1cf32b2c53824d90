"""Define the dropout guide, the distribution of its weights, and which sites it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import Distribution, biject_to, constraints

from moment_calculus.numerics.private_apis import (
    is_constant,
    programs_inside,
    restricted,
)
from moment_guides.families import mc_dropout
from moment_guides.families.mc_dropout import (
    DroppedWeightBase,
    WeightSites,
    bounded_site_error,
    prior_scale,
)
from moment_guides.families.mean_field import FixedSettings, LatentSite, with_known_options
from moment_guides.numpyro.latent_sites import ModelTrace, init_to_network, is_latent, is_real
from moment_guides.numpyro.mean_field import DVIGuide

# Primitives that leave a value as it is, except for its precision.
_SAME = frozenset("convert_element_type copy copy_p optimization_barrier name".split())

Site = tuple[str, tuple[int, ...]]  # its name, and which of its own axes is at each place


def weights_of(
    model: Callable, trace: Mapping[str, dict], args: tuple, kwargs: dict
) -> WeightSites:
    """Trace a seeded model to find which of its latent sites linear maps contract."""
    latent = {name: site["value"] for name, site in trace.items() if is_latent(site)}
    params = {n: s["value"] for n, s in trace.items() if s["type"] == "param" and _is_array(s)}

    def program(latent: dict[str, jax.Array], params: dict[str, Any]) -> Any:
        with handlers.block():
            substituted = handlers.substitute(model, data={**params, **latent})
            sites = handlers.trace(substituted).get_trace(*args, **kwargs)
        scales = [prior_scale(sites[name]["fn"]) for name in sorted(latent)]
        kinds = ("sample", "deterministic")
        outputs = [[s["value"], s.get("fn")] for s in sites.values() if s["type"] in kinds]
        leaves = [leaf for leaf in jax.tree.leaves(outputs) if isinstance(leaf, jax.Array)]
        return [0.0 if scale is None else scale for scale in scales], leaves

    jaxpr = jax.make_jaxpr(program)(latent, params).jaxpr
    names = sorted(latent)  # JAX flattens dictionaries in this order
    contracted_axes: dict[str, int] = {}
    aliases = [(name, tuple(range(-jnp.ndim(latent[name]), 0))) for name in names]
    _follow_sites(jaxpr, [*aliases, *[None] * (len(jaxpr.invars) - len(names))], contracted_axes)
    learnt = (name for index, name in enumerate(names) if _depends(jaxpr, index))
    return WeightSites(contracted_axes, frozenset(learnt))


def _is_array(site: dict) -> bool:
    return all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(site["value"]))


def _depends(jaxpr: Any, index: int) -> bool:
    """Return whether any output of a program depends on its input at ``index``."""
    wanted = [number == index for number in range(len(jaxpr.outvars))]
    return any(restricted(jaxpr, wanted)[1])


def _follow_sites(
    jaxpr: Any, inputs: Sequence[Site | None], contracted_axes: dict[str, int]
) -> list[Site | None]:
    """Record what a program contracts; return the sites of its outputs."""
    sites = {variable: site for variable, site in zip(jaxpr.invars, inputs, strict=True) if site}
    site_of = lambda v: None if is_constant(v) else sites.get(v)  # noqa: E731
    for equation in jaxpr.eqns:
        operands = [site_of(variable) for variable in equation.invars]
        if any(operands):
            results = _results(equation, operands, contracted_axes)
            pairs = zip(equation.outvars, results, strict=False)
            sites.update((variable, site) for variable, site in pairs if site)
    return [site_of(variable) for variable in jaxpr.outvars]


def _results(equation: Any, operands: list, contracted_axes: dict[str, int]) -> list[Site | None]:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        _record_contraction(parameters["dimension_numbers"], operands, contracted_axes)
    if name in _SAME:
        return operands
    if name == "transpose":
        site, order = operands[0]
        return [(site, tuple(order[axis] for axis in parameters["permutation"]))]
    for inner in programs_inside(equation):
        if len(inner.invars) == len(operands):  # calls, not the bodies of loops
            return _follow_sites(inner, operands, contracted_axes)
    return []


def _record_contraction(dimensions: Any, operands: list, contracted_axes: dict[str, int]) -> None:
    contracted, batch = dimensions
    for site, axes, batched in zip(operands, contracted, batch, strict=True):
        if site and len(axes) == 1 and not batched:
            contracted_axes.setdefault(site[0], site[1][axes[0]])


class DroppedWeight(DroppedWeightBase, Distribution):
    """M diag(z) with an inverted mask z over the inputs, for M = loc; it has no density.

    All rows of the inputs share the one mask of a draw. Propagated moments and draws have
    a mask for every row instead: the marginals of each row are the same.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (NumPyro's own convention)
    pytree_data_fields = ("loc", "p")
    pytree_aux_fields = ("design",)
    reparametrized_params = ["loc", "p"]  # noqa: RUF012

    def __init__(
        self,
        loc: jax.Array,
        p: Any,
        design: mc_dropout.MaskedSite,
    ) -> None:
        self.loc, self.p, self.design = loc, p, design
        split = jnp.ndim(loc) - design.event_dim
        shape = jnp.shape(loc)
        super().__init__(shape[:split], shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        if self.event_dim == 0:
            return constraints.real
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def has_rsample(self) -> bool:
        """Return True: draws are differentiable in M."""
        return True

    def expand(self, batch_shape: Sequence[int]) -> DroppedWeight:
        """Return the same distribution with another batch shape."""
        shape = tuple(batch_shape) + self.event_shape
        return DroppedWeight(jnp.broadcast_to(self.loc, shape), self.p, self.design)

    def noise(self, key: jax.Array, shape: Sequence[int]) -> jax.Array:
        """Return independent noise z of mean 1, e.g. [rows, in] for a mask in every row."""
        dtype = jnp.result_type(float, self.loc)
        if self.design.noise == "gaussian":
            return mc_dropout.gaussian(jax.random.normal(key, tuple(shape), dtype), self.p)
        if self.design.temperature is None:
            uniform = jax.random.uniform(key, tuple(shape), dtype)
            return mc_dropout.bernoulli(uniform, self.p)
        tiny = float(jnp.finfo(dtype).eps)
        uniform = jax.random.uniform(key, tuple(shape), dtype, tiny, 1 - tiny)
        return mc_dropout.relaxed(uniform, jnp.asarray(self.p, dtype), self.design.temperature)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw weights, one mask per draw, differentiable in M and p of relaxed masks."""
        return self.loc * self.noise(key, tuple(sample_shape) + self.mask_shape)


class MCDropoutGuide(FixedSettings, DVIGuide):
    """Dropout as a posterior: weights M diag(z) with a mask z of their inputs for every datum.

    Args:
        model: the NumPyro model; by default that of the first ``SVI``.
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
        create_plates: optional function that makes the plates, as in NumPyro's guides.
        prefix: part of the parameters' names, as in NumPyro's guides.

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
        prefix: str = "auto",
    ) -> None:
        self.options = mc_dropout.DropoutOptions(p, noise, others, learn_p, temperature)
        super().__init__(
            model,
            init_loc_fn=init_loc_fn,
            init_scale=init_scale,
            create_plates=create_plates,
            prefix=prefix,
        )
        self._weights = mc_dropout.WeightSites({}, frozenset())
        self._rates: dict[str, float] = {}

    @property
    def masked(self) -> dict[str, float]:
        """Return the dropout probability of every masked site; the initial one if it is learnt."""
        return dict(self._rates)

    def _inspect_model(self, model: Callable, run: ModelTrace, args: tuple, kwargs: dict) -> None:
        latent = {name: site for name, site in run.trace.items() if is_latent(site)}
        self._weights = weights_of(model, run.trace, args, kwargs)
        self._rates = self.options.rates(self._weights.axes, latent)
        for name in self._rates:
            if not is_real(latent[name]["fn"].support):
                raise bounded_site_error(name)

    def _declare(
        self, site: LatentSite, initial: Callable[[str], jax.Array]
    ) -> tuple[jax.Array, Any]:
        """Declare the location, and a masked site's probability or another's scale."""
        if site.name not in self._rates and self.options.others == "mean_field":
            return super()._declare(site, initial)
        loc = numpyro.param(
            self._name(site.name, "loc"), lambda key: initial(site.name), event_dim=site.event_dim
        )
        rate = self._rates.get(site.name)
        if rate is None or not self.options.learn_p:
            return loc, rate
        learnt = numpyro.param(
            self._name(site.name, "p"), jnp.asarray(rate), constraint=constraints.unit_interval
        )
        return loc, learnt

    def _parameters(self, params: dict[str, jax.Array]) -> list[tuple[LatentSite, jax.Array, Any]]:
        second: dict[str, Any] = {
            self._name(site.name, "scale"): params.get(
                self._name(site.name, "p"), self._rates.get(site.name)
            )
            for site in self._sites or ()
        }
        return super()._parameters({**second, **params})

    def _posterior(self, site: LatentSite, loc: jax.Array, scale: Any) -> dist.Distribution:
        options = self.options
        if site.name in self._rates:
            design = options.design(site.name, site.event_dim, self._weights)
            return DroppedWeight(loc, scale, design)
        if options.others == "mean_field":
            return super()._posterior(site, loc, scale)
        value = biject_to(site.support)(loc)
        event_dim = site.event_dim + jnp.ndim(value) - jnp.ndim(loc)
        return dist.Delta(value, event_dim=event_dim)

    def median(self, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return posterior medians by site name; for masked sites the mean M, as without dropout.

        Args:
            params: parameters, as ``svi.get_params`` gives them.
        """
        return super().median(params)

    def quantiles(
        self, params: dict[str, jax.Array], quantiles: Sequence[float]
    ) -> dict[str, jax.Array]:
        """Return posterior quantiles of every element.

        Args:
            params: parameters, as ``svi.get_params`` gives them.
            quantiles: probabilities between 0 and 1.

        Returns:
            Arrays [len(quantiles), ...] by site name, on the sites' supports.
        """
        mean_field = self.options.others == "mean_field"
        result = super().quantiles(params, quantiles) if mean_field else {}
        for name, posterior in self.get_posterior(params).items():
            if name in self._rates or not mean_field:
                result[name] = _quantiles(posterior, quantiles)
        return result


def _quantiles(posterior: Any, quantiles: Sequence[float]) -> jax.Array:
    shape = posterior.shape()
    levels = jnp.asarray(quantiles).reshape((-1,) + (1,) * len(shape))
    levels = jnp.broadcast_to(levels, (len(levels), *shape))
    if isinstance(posterior, DroppedWeight):
        return posterior.icdf(levels)
    return jnp.broadcast_to(posterior.v, levels.shape)
