"""Measure how exact the moments of a model and a guide are, layer by layer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyro
import torch

from moment_calculus import errors
from moment_calculus.numerics import to_numpy
from moment_calculus.rulebooks import propagation_by
from moment_calculus.values import Propagation, RuleBook
from moment_inference.criticism import (
    MomentAccuracy,
    RecordedOperation,
    accuracy_of,
    check_draws,
    layers_of,
    other_path,
)
from moment_inference.objectives import remembered
from moment_inference.optimisation import Fit
from pyro_moments.criticism.posteriors import posterior_of
from pyro_moments.criticism.recorded_program import (
    Dropout,
    FollowedDraw,
    Recorder,
    Replay,
    ReplayMessenger,
    short_name,
    value_of,
)
from pyro_moments.evaluation.arguments import checked
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.likelihoods.structure import constrained_tensors
from pyro_moments.particles.noise import VmapRunner
from pyro_moments.prediction.predict import is_deterministic, moment_trace, sites_to_predict
from pyro_moments.sites.drawn_traces import SharedSubsamples
from pyro_moments.sites.random_watch import run_watched


@checked
@torch.no_grad()
def moment_accuracy(
    model: Callable,
    guide: Any,
    *data: Any,
    num_samples: int = 1000,
    covariance: str | None = None,
    rules: str | RuleBook | None = None,
    **named: Any,
) -> MomentAccuracy:
    """Compare the moments of every layer of a model with those of draws through it.

    The program of guide and model is run once with moments, as by ``predict``, and then
    as a plain program with draws of the latent sites from the guide. Each operation whose
    result has moments is a row of the result: linear maps, activations, normalisations,
    sums and products, deterministic sites, and the parameters of the observed sites'
    distributions. Reshapes and other moves of elements are none; of what is put together
    to one function (softmax spelled out, a chain of elementwise functions) parts that
    have no moments of their own are left out; a loop of JAX is one row for each of its
    results.

    A row has the error measures of Shekhovtsov et al. 2018, ε_μ = mean |μ − μ*| / mean σ*
    and ε_σ, the geometric mean of σ / σ*, with Monte Carlo standard errors by a jackknife
    of twenty groups of draws, which takes into account that the elements of a layer are
    drawn together. ε_μ of exact moments is not zero but √(2 / πn), its ``noise``.
    Elements whose sampled standard deviation a few draws decide, such as units that
    hardly ever fire, are left out of ε_σ; the root mean square error of correlations is
    about 1 / √n where covariances are exact. A row counts as accurate within four
    standard errors: among fifteen exact rows one in about a hundred runs has one beyond.

    Args:
        model: Pyro model.
        guide: trained guide with Gaussian sites, or what ``fit`` returned.
        *data: arguments of both, with or without observations.
        num_samples: number of draws, at least 40; means are compared to 1 / √n standard
            deviations.
        covariance: ``"full"``, ``"backward"`` or ``"diagonal"``; by default as in ``predict``.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, ``"vbp"``, ``"logistic"``,
            or your own; by default as in ``predict``.
        **named: arguments of model and guide by name.

    Returns:
        The accuracy: a ``MomentAccuracy``, with ``rows``, ``worst``, ``sentence``,
        ``table()`` and ``plot()``; ``accuracy["obs.loc"]`` is the row of a site's
        parameter.

    Raises:
        UnsupportedMoments: if model or guide leave what is supported, or the program
            takes another path with draws than with moments.
        ValueError: if there are fewer than 40 draws, or nothing in the program is random.

    Source: Shekhovtsov, Flach and Busta 2018, Feed-forward uncertainty propagation,
        section 4.

    Example:
        >>> accuracy = moment_accuracy(model, guide, x, y)  # doctest: +SKIP
        >>> print(accuracy)  # doctest: +SKIP
        >>> accuracy.worst.reason  # doctest: +SKIP
    """
    check_draws(num_samples)
    caller = errors.calling_line()
    parameters: Any = contextlib.nullcontext()
    how = propagation_by(remembered.remembered_objective(guide), covariance, rules)
    if isinstance(guide, Fit):
        posterior = posterior_of(guide, model, data, named)
        parameters, guide = posterior.context.sampling(), guide.guide
        data, named = posterior.context.cast_arguments(data, named)
    program = _Program(model, guide, data, named, how)
    with parameters, pyro.validation_enabled(False), full_precision():
        layers, left_out = layers_of(program.records(Recorder(caller)))
        return accuracy_of(layers, left_out, program.latent, program.draw, num_samples)


class _Program:
    """A model and a guide that are recorded once, then run with draws."""

    def __init__(
        self, model: Callable, guide: Callable, args: tuple, kwargs: dict, how: Propagation
    ) -> None:
        self.program, self.how = (model, guide, args, kwargs, how), how
        self.seed = int(
            torch.randint(2**31, (), device="cpu")
        )  # of the subsamples, which all runs share
        self.calls: Sequence[Any] = ()
        self.latent = 0  # elements of the latent sites
        self.runner = VmapRunner()

    def records(self, recorder: Recorder) -> list[RecordedOperation]:
        """Run with moments, and return all results, those of sites last."""

        def watch(draws: Any, program: Callable, *rest: Any) -> Any:
            recorder.start_model()

            def run() -> Any:
                recorder.restart_model()
                return program()

            return run_watched(draws, run, *rest)

        with recorder.recording(), SharedSubsamples(self.seed):
            sites, latent = moment_trace(*self.program, watch=watch)
        values = [site["value"] for name, site in sites.items() if name in latent]
        self.calls, self.latent = recorder.calls, sum(math.prod(value.shape) for value in values)
        return recorder.records() + [
            RecordedOperation(
                type(site["fn"]).__name__, site.get("line", ""), value_of(tensor), name
            )
            for name, site in sites_to_predict(sites, latent).items()
            for name, tensor in _tensors(name, site, MomentTensor)
        ]

    def draw(self, count: int, indices: Sequence[int]) -> list[np.ndarray]:
        """Return draws of the recorded results at some places, [count, ...] each."""
        parts = self.runner(lambda _: self._once(indices), count)
        return list(map(to_numpy, parts))

    def _once(self, indices: Sequence[int]) -> list[torch.Tensor]:
        replay = Replay(self.calls)
        messenger = ReplayMessenger(replay, self.how, self.program[1])
        with SharedSubsamples(self.seed), Dropout(replay):
            result = moment_trace(*self.program, messenger=messenger, watch=_unwatched)
        if replay.index < len(self.calls):
            missed = self.calls[replay.index]
            raise other_path(short_name(missed.function), "nothing more", missed.line)
        sites = [
            tensor.tensor
            for name, site in sites_to_predict(*result).items()
            for _, tensor in _tensors(name, site, FollowedDraw)
        ]
        results = [*replay.results, *sites]
        return [results[index] for index in indices]


def _unwatched(draws: Any, program: Callable[[], Any], *_: Any) -> Any:
    return program()


def _tensors(name: str, site: Any, kind: type) -> list[tuple[str, Any]]:
    """Return a deterministic site's random value, or a distribution's parameters."""
    if is_deterministic(site):
        return [(name, site["value"])] if isinstance(site["value"], kind) else []
    tensors = {f"{name}.{part}": t for part, t, _ in constrained_tensors(site["fn"], kind)}
    return list(tensors.items())
