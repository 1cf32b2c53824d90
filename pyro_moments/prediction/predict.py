"""Predict what a model observes: moments and log density, in closed form or by draws."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites, site_is_subsample

from moment_calculus import errors
from moment_calculus.likelihoods import PREDICTIVE_RULES, families
from moment_calculus.numerics import one_thread_at_a_time
from moment_calculus.predictions import (
    ClosedFormSite,
    Moments,
    SampledSite,
    at_site,
    blocks,
    checked_count,
    moments_of_draws,
    not_of_particles,
    summed_log_density,
)
from moment_calculus.rulebooks import propagation_by
from moment_calculus.values import Propagation, RuleBook, check_choice
from moment_inference import (
    Attribution,
    attribution_of,
    moments_with_attribution,
    with_shared_draws,
)
from moment_inference.objectives import choices, remembered
from moment_inference.optimisation import Fit
from pyro_moments._host import tree_flatten, tree_leaves, tree_unflatten
from pyro_moments.evaluation.arguments import checked
from pyro_moments.evaluation.failure_causes import diagnose_errors, explain_predictions
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.evaluation.uncertain_inputs import at_means, with_values
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.likelihoods.expected import draw_observations, marginal, moments_and_law
from pyro_moments.likelihoods.structure import has_moments, tensors_of, with_particle_axis
from pyro_moments.particles.noise import VmapRunner
from pyro_moments.particles.undrawn import Particle, draw_all, without_rows
from pyro_moments.prediction.storing import stored
from pyro_moments.sites.drawn_traces import drawn_traces
from pyro_moments.sites.host_transforms import transforms_with_moments
from pyro_moments.sites.messenger import MomentMessenger
from pyro_moments.sites.random_watch import run_watched
from pyro_moments.sites.subsamples import without_subsampling
from pyro_moments.sites.traces import bind, check_masked_rows, is_factor, is_sample, settle

CLASSES = torch.distributions.Categorical
Verb = TypeVar("Verb", bound=Callable[..., Any])
PARTICLES = 100  # draws of the latent sites


@contextmanager
def without_gradients() -> Iterator[None]:
    """Return a context of full precision without gradients, for lazy computations."""
    with torch.no_grad(), full_precision():
        yield


@one_thread_at_a_time
class Prediction(ClosedFormSite):
    """Predictive distribution of one site, as moments, a log density, quantiles and draws.

    For classes the moments are those of the one-hot outcome: ``mean`` holds the
    probabilities, ``epistemic_variance`` what of p(1 − p) comes from not knowing the
    weights. Moments that do not exist are NaN or infinite: a Cauchy or a Student with one
    degree of freedom or less has no mean, and with two or less infinite
    ``aleatoric_variance``; it has quantiles.

    Args:
        name: the site.
        fn: its distribution, with random parameters.

    Raises:
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    framework, _inversion = "Pyro", staticmethod(torch.no_grad)

    def __init__(self, name: str, fn: Any) -> None:
        inner = families.unwrapped(fn, WRAPPERS)
        base, has_classes = inner[0], isinstance(inner[0], CLASSES)
        rules = moments_and_law(name, base), marginal(name, base)
        # What is computed later has gradients if the moments have.
        context = full_precision if torch.is_grad_enabled() else without_gradients
        super().__init__(name, fn, inner, *rules, has_classes, context)

    def __reduce__(self) -> tuple:
        """Return what to pickle: the distribution of the site, without the steps of the model."""
        return restored_prediction, (type(self), self.name, stored(self.name, self.distribution))

    def attribution(self) -> Attribution:
        """Attribute the predictive variance to its sources.

        These are the latent sites, the Gaussian match of every activation, products of the
        noise of weights and of what they multiply, and the noise of the observation; their
        variances sum to the predictive variance. The mean of an observation is taken as
        linear in all of them with expected derivatives, as by ``covariance="backward"``.
        Under another rule for the variance (classes, or a prediction by ``"full"`` or
        ``"diagonal"``), the difference has a row of its own.

        Returns:
            :class:`pyro_moments.Attribution`, with a table and a plot.

        Raises:
            UnsupportedMoments: if the mean of the distribution has no moments, or the sweep
                backwards cannot go through a step of the model.
        """
        with self._context():
            attribute = "probs" if isinstance(self._base, CLASSES) else "mean"
            return attribution_of(self, unwrap(getattr(self.distribution, attribute)))

    def sample(self, n: int) -> torch.Tensor:
        """Draw from the predictive distribution of every element, with torch's global generator.

        What an element depends on is drawn from the posterior, then the element from the
        likelihood: exact draws of its own predictive distribution, epistemic and aleatoric
        together. They are not joint draws of several elements: what two rows share,
        because one set of weights predicts both, is not in them. For functions of several
        rows (sums, maxima, paths) draw the weights with Pyro's ``Predictive``.

        Args:
            n: how many draws.

        Returns:
            Tensor [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
            UnsupportedMoments: if the predictive moments are of a rule of your own that
                returns a log density, not a distribution.
        """
        count = checked_count(n)
        with without_gradients():
            return self._draws(
                has_moments(self._base),
                lambda distribution: distribution.sample((count,)),
                lambda base, shape: draw_observations(base, count, torch.Size(shape)),
            )


@one_thread_at_a_time
class SampledPrediction(SampledSite):
    """Predictive distribution of one site by particles, with the interface of ``Prediction``.

    A mixture with equal weights: ``mean`` is the mean of the particles' means and
    ``epistemic_variance`` their variance, ``aleatoric_variance`` the mean of the
    particles' variances. ``log_prob`` is the logarithm of the mean density, of all
    elements of an event together. Quantiles invert the mixture's own distribution
    function; ``credible_interval`` is between quantiles of the particles' means, by
    Hazen's rule, and no wider than these.

    Args:
        name: the site.
        fn: its distribution, whose batch shape begins with the particles.

    Raises:
        ValueError: if the batch shape is empty, or a parameter is random: then there are
            no particles.
        UnsupportedMoments: if there are no predictive moments for the distribution.
    """

    _inversion = staticmethod(torch.no_grad)

    def __init__(self, name: str, fn: Any) -> None:
        if not fn.batch_shape or has_moments(fn):
            raise not_of_particles(name, type(fn).__name__, fn.batch_shape)
        with full_precision():
            super().__init__(Prediction(name, fn))

    def __reduce__(self) -> tuple:
        """Return what to pickle: the distribution of the site, without the steps of the model."""
        return restored_prediction, (type(self), self.name, stored(self.name, self.distribution))

    def sample(self, n: int) -> torch.Tensor:
        """Draw from the predictive distribution, with torch's global generator.

        A draw is of one particle in all its elements, and so a joint draw of several
        rows. Every particle has equally many draws, or one more than others, in random
        order.

        Args:
            n: how many draws.

        Returns:
            Tensor [n, ...] of observations.

        Raises:
            ValueError: if ``n`` is not a positive number.
        """
        count, particles = checked_count(n), self.distribution.batch_shape[0]
        with without_gradients():
            drawn = self.distribution.sample((-(-count // particles),)).flatten(0, 1)
            return drawn[torch.randperm(len(drawn), device=drawn.device)[:count]]


def restored_prediction(kind: type, name: str, content: bytes) -> Any:
    """Return a prediction that was pickled."""
    with without_gradients():
        prediction = kind(name, pickle.loads(content))
    prediction.is_restored = True
    return prediction


def predict_by_particles(
    program: tuple[Callable, Callable, tuple, dict],
    is_mean: bool,  # whether the means of the latent sites replace draws
    count: int,
) -> dict[str, Any]:
    """Return the predictions of a model's sites by draws of its latent sites."""
    count = 1 if is_mean else count
    kinds: dict[str, Any] = {}
    with poutine.block():
        args, named = at_means(*program[2:])
        program[1](*args, **named)  # the guide makes its parameters outside vmap

    def particle(shared_draws: frozenset[str], seed: int) -> dict[str, list[torch.Tensor]]:
        settings, undrawn = Particle(shared_draws, is_mean, by_rows=False), LeaveUndrawn()
        model, guide = drawn_traces(settings, *program, seed=seed, model_handler=undrawn)
        samples = {n: site for n, site in model.nodes.items() if site["type"] == "sample"}
        sites = sites_to_predict(samples, frozenset(guide.stochastic_nodes))
        kinds.update({n: site["fn"] if is_sample(site) else None for n, site in sites.items()})
        return {
            name: [without_rows(draw_all(part)) for part in tensors_of(site["fn"])]
            if is_sample(site)
            else [site["value"]]
            for name, site in sites.items()
        }

    parameters = with_shared_draws(lambda shared: VmapRunner()(partial(particle, shared), count))
    return {
        name: moments_of_draws(parts[0], full=False)
        if kinds[name] is None
        else SampledPrediction(name, with_particle_axis(kinds[name], parts, count))
        for name, parts in parameters.items()
    }


class LeaveUndrawn(Messenger):
    """Leaves sites without observations undrawn; their value is a placeholder of NaNs."""

    def __init__(self, latent: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.latent = latent
        self.names: set[str] = set()  # of all sites

    def _pyro_sample(self, msg: Any) -> None:
        self.names.add(msg["name"])
        if msg["name"] in self.latent or msg["done"] or site_is_subsample(msg):
            return
        if msg["value"] is None:
            shape = msg["fn"].batch_shape + msg["fn"].event_shape
            devices = [part.device for part in tensors_of(msg["fn"])]
            device = devices[0] if devices else torch.get_default_device()
            msg["value"], msg["done"] = torch.full(shape, torch.nan, device=device), True


def _with_gradients_by_inputs(verb: Verb) -> Verb:
    """Decorate a function that has gradients only if a tensor among its arguments requires them."""

    @wraps(verb)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = tree_leaves((args, kwargs))
        required = any(isinstance(part, torch.Tensor) and part.requires_grad for part in leaves)
        with torch.set_grad_enabled(required and torch.is_grad_enabled()):
            return verb(*args, **kwargs)

    return call  # type: ignore[return-value]


@checked
@_with_gradients_by_inputs
def predict(
    model: Callable,
    guide: Any,
    *args: Any,
    covariance: str | None = None,
    rules: str | RuleBook | None = None,
    propagation: str | None = None,
    num_particles: int | None = None,
    categorical: str | None = None,
    batch_size: int | None = None,
    **kwargs: Any,
) -> dict[str, Prediction | SampledPrediction | Moments]:
    """Predict what the model observes, in closed form and one pass, or by draws.

    Args:
        model: Pyro model.
        guide: trained guide with Gaussian sites; or what ``fit`` returned; or what ``nested``
            returned: predictions are mixtures over its draws then.
        *args: the model's arguments, with new inputs and, usually, without observations;
            ``Moments`` for inputs that are uncertain or missing. A plate that draws a
            subsample of their rows takes all of them.
        covariance: ``"full"``, ``"backward"`` or ``"diagonal"``; by default that of the
            objective of the fit, else what the guide names, such as ``"full"`` of a
            ``DVIGuide``, else ``"full"``.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, ``"vbp"``, ``"logistic"``,
            or your own; by default that of the objective of the fit, else ``"exact"``.
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``; by default that of a fit by
            ``DeterministicELBO`` or ``BBAlphaELBO``, else ``"analytic"``.
        num_particles: number of draws of the latent sites: 100 by default with
            ``propagation="sampled"``, 1000 of what ``nested`` returned, which has no
            propagation.
        categorical: rule for classes, by default that of the objective of the fit if it has
            probabilities, else that of the rule book, or points:
            ``"points"`` (fixed points), ``"pairs"`` (pairwise logsumexp); or a closed form of the
            papers for the mean probability: ``"logistic"``, ``"normal"``, ``"simplified"`` or
            ``"taylor"``, with errors of 0.019, 0.081, 0.029 and 0.021 in a probability at a logit
            variance of one (points: 0.0005, pairs: 0.002), beside the variance by pairs.
        batch_size: rows that are predicted at once by moments; by default all, or blocks of
            them if the values would take more than 1 GiB, where rows do not depend on each
            other: a few are also predicted alone, and have to come out the same. Blocks keep
            moments, and predict the rows again for densities, quantiles and draws; they
            know no attribution, nor covariances between rows of a deterministic site.
        **kwargs: the model's keyword arguments.

    Returns:
        A :class:`Prediction` for every site that is not latent: ``mean``,
        ``epistemic_variance`` (of the location), ``aleatoric_variance`` (of the noise),
        ``variance``, ``log_prob``, ``quantile`` and ``interval``, ``probs`` and
        ``variation_ratio`` of classes, ``entropy`` and ``mutual_information``,
        ``credible_interval`` of the mean, and ``sample``;
        :class:`~moment_calculus.predictions.moments.Moments` for every deterministic site.
        Where a tensor among the arguments requires gradients, moments, densities,
        probabilities and entropies have them; quantiles and draws have none.

    Raises:
        UnsupportedMoments: if the model leaves the supported operations, a site's
            distribution has no predictive moments, or the model draws random numbers that
            belong to no site.

    Source: Wu et al. 2019, eq. 9; classes by points, see ``categorical``.
    """
    if hasattr(guide, "predict_by_draws"):
        options: dict[str, Any] = {"covariance": covariance, "rules": rules}
        options |= {"propagation": propagation, "categorical": categorical}
        options |= {"batch_size": batch_size}
        count = choices.draws_of_nested(num_particles, options)
        with without_subsampling(blocks.leading_lengths(tree_leaves((args, kwargs)))):
            return guide.predict_by_draws(model, args, kwargs, count)
    num_particles = PARTICLES if num_particles is None else num_particles
    objective = remembered.remembered_objective(guide)
    propagation = propagation or remembered.kind_of(objective)
    choices.check_particles(propagation, num_particles)
    if categorical is not None:
        check_choice("categorical", categorical, PREDICTIVE_RULES)
    settings = propagation_by(objective, covariance, rules, categorical)
    context: Any = nullcontext
    if isinstance(guide, Fit):
        args, kwargs = guide.context.cast(args, kwargs)
        guide, context = guide.guide, guide.context
    if propagation == "analytic":
        leaves, structure = tree_flatten((args, kwargs))

        def predict_rows(leaves: list[Any]) -> dict[str, Any]:
            args, kwargs = tree_unflatten(leaves, structure)
            with context(), without_subsampling(blocks.leading_lengths(leaves)):
                return _predicted((model, guide, args, kwargs), settings, propagation)

        rows = blocks.Rows.of(leaves, predict_rows, context=without_gradients)
        return dict(blocks.in_blocks(rows, batch_size, settings.memory_limit))
    blocks.check_at_once(batch_size, propagation)
    with context(), without_subsampling(blocks.leading_lengths(tree_leaves((args, kwargs)))):
        program = model, guide, args, kwargs
        return _predicted(program, settings, propagation, num_particles)


@torch.no_grad()
def predict_by(
    objective: Any, model: Callable, guide: Callable, args: tuple, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return predictions at the present parameters, as of an objective."""
    settings = propagation_by(objective, None, None)
    return _predicted((model, guide, args, kwargs), settings, remembered.kind_of(objective))


def _predicted(
    program: tuple[Callable, Any, tuple, dict[str, Any]],
    settings: Propagation,
    kind: str,  # of the propagation
    num_particles: int = PARTICLES,
) -> dict[str, Any]:
    model, guide, args, kwargs = program
    if kind != "analytic":
        bind(guide, model)
        return predict_by_particles(program, kind == "mean", num_particles)
    sites = sites_to_predict(*moment_trace(model, guide, args, kwargs, settings))
    with full_precision():
        predictions = {name: prediction_at(name, site) for name, site in sites.items()}
    explain_predictions(predictions, model, args, kwargs)
    return predictions


@torch.no_grad()
def log_predictive(
    propagation: Propagation, model: Callable, guide: Callable, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Return the summed log predictive densities of all observations."""
    sites = sites_to_predict(*moment_trace(model, guide, args, kwargs, propagation))
    observed = {
        name: site
        for name, site in sites.items()
        if site["is_observed"] and not is_deterministic(site)
    }
    with full_precision():
        return summed_log_density(observed, prediction_at)


def moment_trace(
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    propagation: Propagation,
    messenger: MomentMessenger | None = None,  # of latent sites
    watch: Callable[..., Any] = run_watched,  # runs the model
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return a model's sites, with moments for latent ones, and the names of the latent ones.

    Sites without observations are not drawn.
    """
    bind(guide, model)
    propagation = propagation.of_guide(poutine.unwrap(guide))
    messenger = messenger or MomentMessenger(propagation, guide=guide)
    of_guide = at_means(args, kwargs)
    of_model = with_values(model, args, kwargs, messenger.input_value)
    with diagnose_errors(model, args, kwargs, guide), messenger:
        with transforms_with_moments(guide, *of_guide):
            guide_trace = poutine.trace(guide).get_trace(*of_guide[0], **of_guide[1])
        latent = frozenset(guide_trace.stochastic_nodes)
        with LeaveUndrawn(latent) as undrawn:
            replayed = poutine.replay(model, trace=guide_trace)
            program = partial(poutine.trace(replayed).get_trace, *of_model[0], **of_model[1])
            try:
                trace = watch(messenger.generator_watch, program, propagation, model)
            except ValueError:  # torch's distributions do not take placeholders
                errors.check_same_model(latent, undrawn.names)
                raise
    nodes = prune_subsample_sites(trace).nodes.items()
    sites = {name: site for name, site in nodes if site["type"] == "sample"}
    check_masked_rows(sites, latent)
    if propagation.may_sweep:
        settle(sites, latent)
    return sites, latent


def sites_to_predict(sites: dict[str, Any], latent: frozenset[str]) -> dict[str, Any]:
    """Return the sites of a trace that are neither latent nor factors."""
    errors.check_same_model(latent, sites)
    return {
        name: site for name, site in sites.items() if name not in latent and not is_factor(site)
    }


def is_deterministic(site: Any) -> bool:
    """Return whether a site of a trace is a ``pyro.deterministic``."""
    return bool((site["infer"] or {}).get("_deterministic"))


def prediction_at(name: str, site: Any) -> Any:
    """Return the prediction of a site, or the moments of a deterministic one."""
    if is_deterministic(site):
        return moments_with_attribution(unwrap(site["value"]))
    return at_site(Prediction, name, site)
