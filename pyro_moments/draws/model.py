"""A Pyro model with its arguments, which runs with draws of its latent sites."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger
from pyro.poutine.uncondition_messenger import UnconditionMessenger
from pyro.poutine.util import prune_subsample_sites
from torch.distributions import biject_to

from moment_calculus.likelihoods import families
from moment_calculus.numerics import to_numpy
from moment_calculus.predictions import moments_of_draws
from moment_inference import plate_axes, unknown_site
from moment_inference.criticism import Arrays, model_with_draws
from pyro_moments._host import tree_flatten, tree_leaves, tree_map, tree_unflatten
from pyro_moments.evaluation.failure_causes import observe, prepared
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.likelihoods.structure import tensors_of, with_particle_axis
from pyro_moments.objectives.base import Program
from pyro_moments.particles.noise import OutOfPlace, OwnArrays
from pyro_moments.prediction.predict import LeaveUndrawn, SampledPrediction, is_deterministic
from pyro_moments.sites.subsamples import SubsampledPlates, without_subsampling
from pyro_moments.sites.terms import without_wrappers
from pyro_moments.sites.traces import is_factor


def is_deterministic_value(site: Any) -> bool:
    """Return whether a site is deterministic, also if a reparameterisation made it so."""
    if is_deterministic(site):
        return True
    fn = site["fn"]
    is_masked = isinstance(fn, MaskedDistribution) and fn._mask is False
    inner = families.unwrapped(fn, WRAPPERS)[0]
    return site["is_observed"] and is_masked and isinstance(inner, dist.Delta)


def is_predicted(site: Any) -> bool:
    """Return whether a site is predicted, hence neither deterministic nor a factor."""
    return not is_deterministic_value(site) and not is_factor(site)


def is_observed(site: Any) -> bool:
    """Return whether a site is observed, and neither deterministic nor a factor."""
    return site["is_observed"] and is_predicted(site)


def event_dim_of(site: Any) -> int:
    """Return the number of event axes of a site."""
    event = site["fn"].event_dim
    # By default all axes of a deterministic site are event axes to Pyro.
    return 0 if is_deterministic_value(site) and event == site["value"].dim() else event


def whole_value(site: Any) -> torch.Tensor:
    """Return the value of a site, expanded to the shape of its distribution."""
    value, fn = site["value"], site["fn"]
    if is_deterministic_value(site):
        return value
    shape = torch.broadcast_shapes(fn.batch_shape, value.shape[: value.dim() - fn.event_dim])
    return value.expand(shape + value.shape[value.dim() - fn.event_dim :])


def log_density(sites: Iterable[Any]) -> torch.Tensor:
    """Return the sum of the log densities of sites, with their scales and masks, in float64."""
    parts = [
        log_prob_of(site, site["scale"]).sum(dtype=torch.float64)  # float32 loses nats for 10⁵ data
        for site in sites
        if not is_deterministic(site)
    ]
    return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64, device="cpu")


def log_prob_of(site: Any, scale: Any = 1.0) -> torch.Tensor:
    """Return the log density of each element of a site, scaled and masked."""
    return scale_and_mask(site["fn"].log_prob(prepared(site)), scale, site["mask"])


def check_observed_whole(subsampled: SubsampledPlates, sites: Mapping[str, Any]) -> None:
    """Raise ValueError if sites are observed only at a subsample of an enlarged plate."""
    for name, site in sites.items():
        value, event = site["value"], site["fn"].event_dim
        for frame in site["cond_indep_stack"]:
            if frame.vectorized and frame.name in subsampled:
                axis = frame.dim - event
                if value.dim() < -axis or value.shape[axis] != frame.size:
                    raise model_with_draws.part_of_plate(
                        frame.name, *subsampled[frame.name], f"in site '{name}'"
                    )


NUMBERS_PER_BATCH = 2**24  # numbers that a batch of draws may hold
Values = Mapping[str, torch.Tensor]
OfDraw = Callable[[Values], Any]


def map_over_draws(
    program: OfDraw, values: Values, count: int, size: int | None = None, inputs: int = 1
) -> Any:
    """Return what a program returns for each of ``count`` draws, a pytree of arrays [draws, ...].

    The first draw runs alone, with Pyro's validation. The others run by vmap, or one
    after the other if vmap fails, as it does if values decide what runs.
    """
    first = program({name: value[0] for name, value in values.items()})
    result, tree = tree_flatten(first)
    arrays = [np.empty((count, *part.shape), _as_array(part).dtype) for part in result]
    # Without a size: as many draws as fit into memory, beside the inputs that the program
    # reads.
    size = size or _batch_size(
        result, max([inputs, *(part[0].numel() for part in values.values())])
    )
    run = runner(program, values, min(size, count))
    for start in range(0, count, size):
        part = {name: value[start : start + size] for name, value in values.items()}
        results = tree_leaves(run(part, min(size, count - start)))
        for leaf, block in zip(arrays, results, strict=True):
            leaf[start : start + size] = _as_array(block)
    return tree_unflatten(arrays, tree)


def _batch_size(result: list[torch.Tensor], inputs: int) -> int:
    return max(1, NUMBERS_PER_BATCH // (sum(part.numel() for part in result) + 10 * inputs))


def _as_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def runner(program: OfDraw, values: Values, size: int) -> Callable[[Values, int], Any]:
    """Return the first way to run the program that works for two draws."""
    count = min(size, 2)
    part = {name: value[:count] for name, value in values.items()}
    ways = [partial(_at_once, program, mode) for mode in (_shared_mode, OwnArrays)]
    for way in ways if size > 1 else ():
        try:
            way(part, count)
        except Exception:  # vmap fails; an error of the model also occurs without vmap
            continue
        return way
    return partial(_one_by_one, program)


def _shared_mode(_: torch.Tensor) -> OutOfPlace:
    return OutOfPlace()


def _at_once(
    program: OfDraw, mode: Callable[[torch.Tensor], OutOfPlace], values: Values, count: int
) -> Any:
    def once(values: Values, zero: torch.Tensor) -> Any:
        with mode(zero):
            return program(values)

    with pyro.validation_enabled(False), warnings.catch_warnings():  # validation looks at values
        # Such operations are still faster than draws one by one.
        warnings.filterwarnings("ignore", "There is a performance drop")
        mapped = torch.vmap(once, randomness="different")
        return mapped(dict(values), torch.zeros(count, device="cpu"))


def _one_by_one(program: OfDraw, values: Values, count: int) -> Any:
    result = [program({name: value[at] for name, value in values.items()}) for at in range(count)]
    return tree_map(lambda *parts: torch.stack(parts), *result)


class FixLatent(Messenger):
    """Handler that gives latent sites their values by name."""

    def __init__(self, values: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.values = values

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values and not msg["is_observed"]:
            msg["value"], msg["done"] = self.values[msg["name"]], True


class DrawObserved(UnconditionMessenger):
    """Handler that draws observed sites, but no deterministic ones."""

    def _pyro_sample(self, msg: Any) -> None:
        if not is_deterministic_value(msg):
            super()._pyro_sample(msg)


@dataclass(frozen=True)
class PyroModel(model_with_draws.SitesOfFirstRun):
    """A Pyro model with its arguments and one draw of each latent site."""

    program: Program
    latent: Mapping[str, np.ndarray]  # one draw of each latent site
    device: torch.device
    batch_size: int | None = None  # draws evaluated at once; None: as many as memory holds

    def _nodes(
        self, values: Mapping[str, torch.Tensor], outside: Messenger | None = None
    ) -> dict[str, Any]:
        with outside or contextlib.nullcontext(), FixLatent(values):
            model, args, kwargs = self.program.of_model
            trace = poutine.trace(model).get_trace(*args, **kwargs)
        nodes = prune_subsample_sites(trace).nodes
        return {name: site for name, site in nodes.items() if site["type"] == "sample"}

    @cached_property
    def first_sites(self) -> dict[str, Any]:
        """Run the model with one draw and whole plates, and return its sites without factors."""
        with without_subsampling() as subsampled:
            try:
                nodes = self._nodes(self._tensors(self.latent))
            except (ValueError, RuntimeError) as error:
                for name, (part, size) in subsampled.items():
                    raise model_with_draws.part_of_plate(
                        name, part, size, str(error).partition("\n")[0]
                    ) from error
                raise
        check_observed_whole(
            subsampled, {name: site for name, site in nodes.items() if is_observed(site)}
        )
        copies = {name: {**site} for name, site in nodes.items()}
        observe(copies, *self.program.of_model)
        return {name: site for name, site in nodes.items() if not is_factor(site)}

    def _tensors(self, values: Arrays) -> dict[str, torch.Tensor]:
        return {n: torch.as_tensor(value, device=self.device) for n, value in values.items()}

    def axes(self, name: str, site: Any) -> model_with_draws.SiteAxes:
        """Return the axes of a site."""
        shape, is_sample = tuple(whole_value(site).shape), not is_deterministic_value(site)
        event = event_dim_of(site)
        plates = {plate: (dim - event, size) for plate, (dim, size) in plate_axes(site).items()}
        kind = "latent" if name in self.latent else "observed" if is_sample else "deterministic"
        return model_with_draws.SiteAxes(name, kind, shape, plates, event if is_sample else 0)

    @cached_property
    def observed(self) -> dict[str, np.ndarray]:
        """Return the values of the observed sites that have one."""
        return {
            name: whole_value(site).detach().cpu().numpy()
            for name, site in self.first_sites.items()
            if is_observed(site)
        }

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """Return the other arrays in the model's arguments."""
        return model_with_draws.constant_data(
            *self.program.of_model, self.observed.values(), _tensor_as_array
        )

    def evaluate(self, values: Arrays) -> model_with_draws.Evaluation:
        """Evaluate the model at draws of its latent sites, [draws, ...] by name."""
        kinds, observed = {name: axes.kind for name, axes in self.sites.items()}, [*self.observed]
        functions = [name for name, kind in kinds.items() if kind == "deterministic"]

        def run(values: Mapping[str, torch.Tensor]) -> tuple:
            nodes = self._nodes(values)
            return (
                log_density(nodes.values()),
                {name: log_prob_of(nodes[name]) for name in observed},
                {name: nodes[name]["value"] for name in functions},
            )

        density, likelihood, deterministic = self._map_draws(run, values)
        return model_with_draws.Evaluation(
            density, likelihood, deterministic, self._values_without_data(values, observed)
        )

    def log_joint(self, values: Arrays) -> np.ndarray:
        """Return the joint log density [draws] of latent sites [draws, ...] and observations."""
        return self._map_draws(lambda values: log_density(self._nodes(values).values()), values)

    def quantity(
        self, of: str | Callable, values: Arrays
    ) -> tuple[list[np.ndarray], Callable[[list[Any]], Any]]:
        """Return arrays [draws, ...] of a site, or a function of sites, and what arranges alike.

        Of an observed site it is the mean. A function gets the latent and the
        deterministic sites.
        """
        if (
            isinstance(of, str)
            and of not in self.latent
            and not is_deterministic_value(self._site(of))
        ):
            return [to_numpy(self.mixtures(values)[of].parts.mean)], lambda parts: parts[0]

        def run(values: Mapping[str, torch.Tensor]) -> Any:
            nodes = self._nodes(values, LeaveUndrawn(frozenset(self.latent)))
            sites = {
                n: s["value"] for n, s in nodes.items() if n in values or is_deterministic_value(s)
            }
            result = sites[of] if isinstance(of, str) else of(sites)
            return tree_map(lambda part: torch.as_tensor(part, device=self.device), result)

        arrays, tree = tree_flatten(self._map_draws(run, values))
        return arrays, lambda parts: tree_unflatten(parts, tree)

    def _site(self, name: str) -> Any:
        nodes = self._nodes(self._tensors(self.latent), LeaveUndrawn(frozenset(self.latent)))
        if name not in nodes:
            raise unknown_site(name, nodes)
        return nodes[name]

    @property
    def improper(self) -> list[str]:
        """Return the names of latent sites whose prior is improper."""
        priors = {name: without_wrappers(self.first_sites[name]["fn"]) for name in self.latent}
        return [name for name, prior in priors.items() if isinstance(prior, dist.ImproperUniform)]

    def unconstrained(self, values: Arrays) -> dict[str, np.ndarray]:
        """Return draws by site on the unconstrained space, from draws on the supports."""
        draws = {}
        for name, value in self._tensors(values).items():
            transform = biject_to(self.first_sites[name]["fn"].support)
            draws[name] = transform.inv(value).double().cpu().numpy()
        return draws

    def mixtures(self, values: Arrays) -> dict[str, SampledPrediction]:
        """Return the predicted mixture of each site over draws [draws, ...] of latent sites."""
        kinds: dict[str, Any] = {}

        def run(values: Mapping[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
            nodes = self._nodes(values, LeaveUndrawn(frozenset(self.latent)))
            sites = {
                n: site for n, site in nodes.items() if n not in self.latent and is_predicted(site)
            }
            kinds.update({name: site["fn"] for name, site in sites.items()})
            return {name: tensors_of(site["fn"]) for name, site in sites.items()}

        count = len(next(iter(values.values())))
        parameters = self._map_draws(run, values)
        # This run without vmap leaves plain distributions in kinds, none with vmap's
        # tensors.
        run({name: value[0] for name, value in self._tensors(values).items()})
        return {
            name: SampledPrediction(
                name,
                with_particle_axis(
                    kinds[name],
                    [torch.as_tensor(part, device=self.device) for part in parts],
                    count,
                ),
            )
            for name, parts in parameters.items()
        }

    def replicate(self, values: Arrays) -> Arrays:
        """Return draws of all sites but the latent ones, whose draws are [draws, ...]."""
        return self._values_without_data(
            values, [name for name in self.sites if name not in self.latent]
        )

    def predictions(self, values: Arrays) -> dict[str, Any]:
        """Return predictions of all draws together, and moments of deterministic sites."""
        moments = {}
        for name in self.deterministic:
            (draws,), _ = self.quantity(name, values)
            moments[name] = moments_of_draws(torch.as_tensor(draws, device=self.device), full=False)
        return {**moments, **self.mixtures(values)}

    def draws_of_prior(self, count: int) -> Arrays:
        """Return the values of all sites in runs without observations."""
        return self._values_without_data({}, [*self.sites], count)

    def _values_without_data(
        self, values: Arrays, names: list[str], count: int | None = None
    ) -> Arrays:
        """Return the values of sites in runs without observations, [draws, ...] by name."""

        def run(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            nodes = self._nodes(values, DrawObserved())
            return {name: nodes[name]["value"] for name in names}

        return self._map_draws(run, values, count)

    def _map_draws(self, function: Callable, values: Arrays, count: int | None = None) -> Any:
        """Return what a function of one draw returns for each draw."""
        tensors = self._tensors(values)
        count = count or len(next(iter(tensors.values())))
        leaves = tree_leaves(self.program.of_model[1:])
        inputs = max([1, *(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))])
        return map_over_draws(function, tensors, count, self.batch_size, inputs)


def _tensor_as_array(value: Any) -> np.ndarray | None:
    return model_with_draws.as_array(
        value.detach().cpu() if isinstance(value, torch.Tensor) else value
    )
