"""Measure how exact the moments of a model and a guide are, layer by layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from moment_calculus import errors
from moment_calculus.rulebooks import propagation_by
from moment_calculus.values import RuleBook
from moment_inference.criticism import (
    Layer,
    MomentAccuracy,
    RecordedOperation,
    accuracy_of,
    check_draws,
    layers_of,
)
from moment_inference.objectives import remembered
from moment_inference.optimisation import check_dictionary, of_fit
from numpyro_moments.criticism.recorded_program import Recorder, drawer, sites_among
from numpyro_moments.evaluation.arguments import Precision, checked, checked_key
from numpyro_moments.likelihoods.structure import constrained_values, settled_parameters
from numpyro_moments.prediction.predict import sites_to_predict
from numpyro_moments.sites.traces import bind, moment_traces


@checked
def moment_accuracy(
    model: Callable,
    guide: Any,
    *data: Any,
    params: dict[str, Any] | None = None,
    num_samples: int = 1000,
    covariance: str | None = None,
    rules: str | RuleBook | None = None,
    rng_key: Any = None,
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
        model: NumPyro model.
        guide: trained guide with Gaussian sites, or what ``fit`` returned.
        *data: arguments of both, with or without observations.
        params: trained parameters of guide and model, unless ``guide`` is a ``Fit``.
        num_samples: number of draws, at least 40; means are compared to 1 / √n standard
            deviations.
        covariance: ``"full"``, ``"backward"`` or ``"diagonal"``; by default as in ``predict``.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, ``"vbp"``, ``"logistic"``,
            or your own; by default as in ``predict``.
        rng_key: random key of the draws; by default always the same.
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
        >>> accuracy = moment_accuracy(  # doctest: +SKIP
        ...     model, guide, x, y, params=params
        ... )
        >>> print(accuracy)  # doctest: +SKIP
        >>> accuracy.worst.reason  # doctest: +SKIP
    """
    how = propagation_by(remembered.remembered_objective(guide), covariance, rules)
    guide, params, _ = of_fit(guide, params)
    check_dictionary(params)
    check_draws(num_samples)
    key = jax.random.key(0) if rng_key is None else checked_key("rng_key", rng_key)
    of_trace, of_draws = jax.random.split(key)
    caller = errors.calling_line()
    with Precision.of(params)():
        bind(guide, model, params)
        program = _Program((model, guide, data, named, params, of_trace, how), caller)
        layers, left_out = program.layers()
        draw = drawer(program.recorder, program.outputs, of_draws)
        return accuracy_of(layers, left_out, program.latent, draw, num_samples)


class _Program:
    """A model and a guide that are recorded once."""

    recorder: Recorder
    outputs: list[int]  # indices of the outputs that are sites
    latent: int  # number of elements of all latent sites

    def __init__(self, arguments: tuple, caller: str) -> None:
        # The arguments of moment_traces, and file and line of the call of
        # moment_accuracy.
        self.arguments, self.caller = arguments, caller

    def layers(self) -> tuple[list[Layer], list[str]]:
        """Return the layers, compiled as one program, and what has no moments."""
        layers_and_texts: list[Any] = []

        def evaluated() -> Any:
            layers_and_texts[:] = layers_of(self._recorded())
            return [layer.arrays for layer in layers_and_texts[0]], self.recorder.arrays()

        arrays, recorded_arrays = jax.jit(evaluated)()
        self.recorder.keep(recorded_arrays)
        pairs = zip(layers_and_texts[0], arrays, strict=True)
        return [dataclasses.replace(layer, arrays=part) for layer, part in pairs], layers_and_texts[
            1
        ]

    def _recorded(self) -> list[RecordedOperation]:
        traces = moment_traces(
            *self.arguments, predicting=True, evaluator=self._evaluator, settles=False
        )
        values = [site["value"] for site in traces.guide.values()]
        self.latent = sum(math.prod(getattr(value, "shape", ())) for value in values)
        parts = _random_parts(sites_to_predict(traces), self.arguments[-1].may_sweep)
        sites, self.outputs = sites_among(self.recorder.results, parts)
        return [*self.recorder.recorded(self.caller), *sites]

    def _evaluator(self, *args: Any, **kwargs: Any) -> Recorder:
        self.recorder = Recorder(*args, **kwargs)
        return self.recorder


def _random_parts(
    sites: Mapping[str, dict], settles: bool
) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Yield deterministic sites, and random parameters of other sites as they are asked for."""
    for name, site in sites.items():
        line = site.get("line", "")
        if site["type"] != "sample":
            yield name, site["type"], line, site["value"], site["value"]
            continue
        kind, fn = type(site["fn"]).__name__, site["fn"]
        asked = settled_parameters(fn) if settles else fn
        pairs = zip(constrained_values(fn), constrained_values(asked), strict=True)
        for (parameter, value, _), (_, new, _) in pairs:
            yield f"{name}.{parameter}", kind, line, value, new
