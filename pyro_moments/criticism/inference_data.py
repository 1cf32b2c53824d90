"""Convert fits to ArviZ's container, and compute leave-one-out scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moment_inference.criticism import ContainerVerbs, convert
from pyro_moments.criticism.posteriors import posterior_of
from pyro_moments.evaluation.arguments import checked


@checked
def to_inference_data(
    model: Callable,
    posterior: Any,
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

    A guide is converted with its current parameters, the result of ``fit`` and a linear
    response with those of their creation. Only the state of torch's global generator is
    changed.

    What a model says of draws of its latent sites is evaluated for all of them: its
    deterministic sites, the log-likelihood of each observed element, replicated
    observations, which are drawn in the order of the program, and the joint log density.
    Plates that the model subsamples count whole.

    Args:
        model: Pyro model, unmodified.
        posterior: what draws are of: a trained guide, or what ``fit`` returned; a
            ``LinearResponse``, for draws of the corrected posterior; a finished Pyro
            ``MCMC``.
        *data: its arguments, with observations.
        num_samples: draws of a guide or of linear response; those of chains are all
            taken.
        importance_weights: whether draws of a guide or of linear response are resampled
            by Pareto-smoothed importance weights p / q, with replacement from twice as
            many, so that they count as draws of the posterior itself; there is no
            ``log_q`` then. The group ``posterior`` tells k̂.
        num_prior_samples: draws of the prior; 0 for none.
        predictions: arguments of the model, a tuple or a dictionary by name, for which
            observations are predicted; usually new inputs without observations. None for
            none.
        dims: names of axes by site, or by argument of the model; by default those of its
            plates.
        coords: coordinates along axes by their names.
        batch_size: draws that are evaluated at once; by default what fits into memory.
        **named: arguments of the model by name.

    Returns:
        ArviZ's ``InferenceData`` with the groups ``posterior``, ``sample_stats`` (``lp``,
        the joint log density on the sites' supports, ``log_q``, that of the guide, and
        what a sampler told), ``posterior_predictive``, ``log_likelihood``,
        ``observed_data``, ``constant_data`` (the model's other arrays), ``prior``,
        ``prior_predictive``, ``predictions`` and ``predictions_constant_data``, as far as
        there is something in them.

    Raises:
        ImportError: if ArviZ is not there.
        ValueError: if the draws are not those of the model's latent sites, or names do
            not fit.
        UnsupportedMoments: if importance weights cannot be trusted: the message tells k̂.
        TypeError: if ``posterior`` is something else.

    Example:
        >>> result = fit(model, guide, x, y, method="newton")  # doctest: +SKIP
        >>> az.summary(to_inference_data(model, result, x, y))  # doctest: +SKIP
    """
    source = posterior_of(posterior, model, data, named)
    how = num_samples, importance_weights, num_prior_samples, predictions
    return convert(source, *how, dims, coords, batch_size)


_verbs = ContainerVerbs(to_inference_data)
loo = checked(_verbs.loo, passes_to=to_inference_data)
predictive_p_values = checked(_verbs.predictive_p_values, passes_to=to_inference_data)
