"""Conversions to ArviZ's container, and leave-one-out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from moment_calculus.criticism.containers.arguments import other_arguments
from moment_calculus.criticism.containers.corrected import proposals, resampled
from moment_calculus.criticism.containers.groups import Wanted, converted
from moment_calculus.criticism.containers.leave_one_out import as_inference_data, leave_one_out
from moment_calculus.criticism.containers.wording import ARGUMENTS, LOO, LOO_RESULT, OPTIONS, RESULT
from moment_calculus.hosts.docstrings import documented
from moment_calculus.hosts.predictions.site import checked_count
from numpyro_moments.criticism.posteriors import posterior_of
from numpyro_moments.draws.model import NumPyroModel
from numpyro_moments.evaluation.keys import checked_key


@documented("NumPyro", arguments=ARGUMENTS, options=OPTIONS, result=RESULT)
def to_inference_data(
    posterior: Any,
    model: Callable,
    *data: Any,
    params: dict[str, Any] | None = None,
    num_samples: int = 1000,
    importance_weights: bool = False,
    num_prior_samples: int = 500,
    predictions: tuple | Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    rng_key: Any = None,
    **named: Any,
) -> Any:
    """Convert a fit, or chains of the same model, to ArviZ's ``InferenceData``.

    {arguments}
        params: trained parameters of guide and model, where ``posterior`` is a guide.
        {options}
        rng_key: random key; by default always the same.
        **named: arguments of the model by name.

    {result}

    Example:
        >>> result = fit(model, guide, x, y, method="newton")  # doctest: +SKIP
        >>> az.summary(to_inference_data(result, model, x, y))  # doctest: +SKIP
    """
    key = jax.random.key(0) if rng_key is None else checked_key("rng_key", rng_key)
    of_draws, of_model = jax.random.split(key)
    source = posterior_of(posterior, model, data, named, params)
    with source.precision():
        count = checked_count(num_samples)
        draws = source.draws(proposals(count) if importance_weights else count, of_draws)
        program = NumPyroModel(
            model, data, named, source.params, draws.first, source.precision, of_model, batch_size
        )
        if importance_weights:
            seed = np.asarray(jax.random.bits(jax.random.fold_in(of_draws, 0), [4]))
            draws = resampled(draws, program.log_joint, np.random.default_rng(seed), count)
        predicted = None if predictions is None else _with(program, predictions)
        wanted = Wanted(num_prior_samples, predicted, dims or {}, coords or {})
        return converted(program, draws, wanted)


def _with(program: NumPyroModel, arguments: tuple | Mapping[str, Any]) -> NumPyroModel:
    args, named = other_arguments(arguments)
    return replace(program, args=args, named=named)


@documented("NumPyro", arguments=LOO, result=LOO_RESULT)
def loo(
    posterior: Any,
    model: Callable | None = None,
    *data: Any,
    site: str | None = None,
    scale: str | None = None,
    importance_weights: bool = True,
    **options: Any,
) -> Any:
    """Leave-one-out expected log predictive density, corrected for the approximation.

    {arguments}
        **options: of ``to_inference_data``, and arguments of the model by name.

    {result}

    Example:
        >>> az.compare({"line": loo(fit_of_line, line, x, y), ...})  # doctest: +SKIP
    """
    found = as_inference_data(posterior, model, data, options, to_inference_data)
    return leave_one_out(found, site, scale, importance_weights)
