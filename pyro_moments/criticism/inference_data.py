"""Convert fits to ArviZ's container, and compute leave-one-out scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from moment_calculus.criticism.containers.arguments import other_arguments
from moment_calculus.criticism.containers.corrected import proposals, resampled
from moment_calculus.criticism.containers.groups import Wanted, converted
from moment_calculus.criticism.containers.leave_one_out import as_inference_data, leave_one_out
from moment_calculus.criticism.containers.wording import ARGUMENTS, LOO, LOO_RESULT, OPTIONS, RESULT
from moment_calculus.hosts.docstrings import documented
from moment_calculus.hosts.predictions.site import checked_count
from pyro_moments.criticism.posteriors import posterior_of
from pyro_moments.draws.model import PyroModel
from pyro_moments.response.surroundings import SEEDS


@documented("Pyro", arguments=ARGUMENTS, options=OPTIONS, result=RESULT)
def to_inference_data(
    posterior: Any,
    model: Callable,
    *data: Any,
    num_samples: int = 1000,
    importance_weights: bool = False,
    num_prior_samples: int = 500,
    predictions: tuple | Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    **named: Any,
) -> Any:
    """Convert a fit, or chains of the same model, to ArviZ's ``InferenceData``.

    A guide is converted with its current parameters, the result of ``fit`` and a linear response
    with those of their creation. Only the state of torch's global generator is changed.

    {arguments}
        {options}
        **named: arguments of the model by name.

    {result}

    Example:
        >>> result = fit(model, guide, x, y, method="newton")  # doctest: +SKIP
        >>> az.summary(to_inference_data(result, model, x, y))  # doctest: +SKIP
    """
    source = posterior_of(posterior, model, data, named)
    count = checked_count(num_samples)
    draws = source.draws(proposals(count) if importance_weights else count)
    generator = np.random.default_rng(int(torch.randint(SEEDS, ()))) if importance_weights else None
    surroundings = source.surroundings
    with surroundings():
        args, named = surroundings.arguments(data, named)
        program = PyroModel(model, args, named, draws.first, source.device, batch_size)
        if generator is not None:
            draws = resampled(draws, program.log_joint, generator, count)
        predicted = None
        if predictions is not None:
            args, named = surroundings.arguments(*other_arguments(predictions))
            predicted = replace(program, args=args, named=named)
        wanted = Wanted(num_prior_samples, predicted, dims or {}, coords or {})
        return converted(program, draws, wanted)


@documented("Pyro", arguments=LOO, result=LOO_RESULT)
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
