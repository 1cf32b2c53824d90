"""How exact the moments of a model and a guide are, layer by layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from moment_calculus.criticism.accuracy.accuracy import MomentAccuracy, accuracy_of, check_draws
from moment_calculus.criticism.accuracy.layers import Layer, Recorded, layers_of
from moment_calculus.criticism.accuracy.wording import ARGUMENTS, OPTIONS, RESULT
from moment_calculus.hosts.docstrings import documented
from moment_calculus.numerics.rulebook import RuleBook
from moment_calculus.optimisation.outcome import Fit
from moment_calculus.refusals.places import calling_line
from moment_calculus.response.wording import check_dictionary
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.criticism.recorder import Recorder, sites_among
from numpyro_moments.criticism.replay import drawer
from numpyro_moments.evaluation.keys import checked_key
from numpyro_moments.evaluation.precision import Precision
from numpyro_moments.likelihoods.structure import constrained_values
from numpyro_moments.prediction.predict import predicted_in
from numpyro_moments.sites.binding import bind
from numpyro_moments.sites.traces import moment_traces


@documented("NumPyro", arguments=ARGUMENTS, options=OPTIONS, result=RESULT)
def moment_accuracy(
    model: Callable,
    guide: Any,
    *data: Any,
    params: dict[str, Any] | None = None,
    num_samples: int = 1000,
    covariance: str = "full",
    rules: str | RuleBook = "exact",
    rng_key: Any = None,
    **named: Any,
) -> MomentAccuracy:
    """Compare the moments of every layer of a model with those of draws through it.

    {arguments}
        params: trained parameters of guide and model, where ``guide`` is no ``Fit``.
        {options}
        rng_key: random key of the draws; by default always the same.
        **named: arguments of model and guide by name.

    {result}

    Example:
        >>> accuracy = moment_accuracy(  # doctest: +SKIP
        ...     model, guide, x, y, params=params
        ... )
        >>> print(accuracy)  # doctest: +SKIP
        >>> accuracy.worst.reason  # doctest: +SKIP
    """
    if isinstance(guide, Fit):
        guide, params = guide.guide, guide.params
    check_dictionary(params)
    check_draws(num_samples)
    key = jax.random.key(0) if rng_key is None else checked_key("rng_key", rng_key)
    of_trace, of_draws = jax.random.split(key)
    caller, how = calling_line(), propagation_of(covariance, rules)
    with Precision.of(params)():
        bind(guide, model, params)
        program = _Program((model, guide, data, named, params, of_trace, how), caller)
        found = program.layers()
        draw = drawer(program.recorder, program.outputs, of_draws)
        return accuracy_of(found, program.latent, draw, num_samples)


class _Program:
    """A model and a guide, which are recorded once.

    Args:
        arguments: those of :func:`.traces.moment_traces`.
        caller: file and line from which it is run.
    """

    recorder: Recorder
    outputs: list[int]
    latent: int

    def __init__(self, arguments: tuple, caller: str) -> None:
        self.arguments, self.caller = arguments, caller

    def layers(self) -> tuple[list[Layer], list[str]]:
        """The layers, compiled as one program, and what has no moments."""
        found: list[Any] = []

        def evaluated() -> Any:
            found[:] = layers_of(self._recorded())
            return [layer.arrays for layer in found[0]], self.recorder.known()

        arrays, known = jax.jit(evaluated)()
        self.recorder.keep(known)
        pairs = zip(found[0], arrays, strict=True)
        return [dataclasses.replace(layer, arrays=part) for layer, part in pairs], found[1]

    def _recorded(self) -> list[Recorded]:
        traces = moment_traces(*self.arguments, predicting=True, evaluator=self._evaluator)
        drawn = [site["value"] for site in traces.guide.values()]
        self.latent = sum(math.prod(getattr(value, "shape", ())) for value in drawn)
        parts = _random_parts(predicted_in(traces))
        sites, self.outputs = sites_among(self.recorder.results, parts)
        return [*self.recorder.recorded(self.caller), *sites]

    def _evaluator(self, *args: Any, **kwargs: Any) -> Recorder:
        self.recorder = Recorder(*args, **kwargs)
        return self.recorder


def _random_parts(sites: Mapping[str, dict]) -> Iterator[tuple[str, str, str, Any]]:
    """Deterministic sites, and the random parameters of the distributions of others."""
    for name, site in sites.items():
        line = site.get("line", "")
        if site["type"] != "sample":
            yield name, site["type"], line, site["value"]
            continue
        kind = type(site["fn"]).__name__
        for parameter, value, _ in constrained_values(site["fn"]):
            yield f"{name}.{parameter}", kind, line, value
