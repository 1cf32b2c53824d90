"""Diagnose in words whether a fit can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpyro.infer.elbo import ELBO

from moment_calculus.criticism.diagnosis.diagnosis import run_checks
from moment_calculus.criticism.diagnosis.findings import Diagnosis
from numpyro_moments.criticism.fitted_model import NumPyroFittedModel
from numpyro_moments.evaluation.arguments import checked_key


def diagnose(
    model: Callable,
    guide: Any,
    *data: Any,
    params: dict[str, Any] | None = None,
    held_out: tuple | None = None,
    objective: ELBO | None = None,
    num_samples: int = 4000,
    verbose: bool = True,
    rng_key: Any = None,
    **named: Any,
) -> Diagnosis:
    """Tell in words whether a trained guide can be trusted for its model and data.

    Looks, one after the other, whether the parameters are an optimum; at the loss by
    draws, if ``fit`` made them; at the Pareto shape k̂ of the importance weights of the
    guide and of its linear response, together with the share of the draws that they are
    worth; whether standard deviations of both are those of weighted draws, where weights
    can be trusted, also on the sites' supports; whether the data contradict the prior;
    which data are too influential for leave-one-out; whether predictions are calibrated,
    and data replicated by the model like those observed. All weights are of the same
    draws.

    Args:
        model: NumPyro model, unmodified.
        guide: trained guide, or what ``fit`` returned.
        *data: what it was trained on, arguments of the model.
        params: trained parameters of guide and model, unless ``guide`` is a ``Fit``.
        held_out: other arguments of the model, with observations that were not trained
            on, a tuple; by default calibration is that on the data, where predictions
            look better than they are.
        objective: the loss that the guide was trained by; by default
            ``DeterministicELBO()``.
        num_samples: draws of the guide, and of linear response, that importance weights
            are of. Their k̂ is an estimate: between draws of 4000 it varies by about 0.1.
        verbose: whether to print the result.
        rng_key: random key; by default always the same.
        **named: arguments of the model by name.

    Returns:
        A ``Diagnosis``: its ``findings``, each with a verdict, what it means and what to
        do; ``problems`` are those that are not good. It prints as one table, with words
        below.

    Raises:
        ImportError: if ArviZ is not there.
        ValueError: if draws are not those of the model's latent sites.

    Source: Yao et al. 2018, Yes, but did it work?: evaluating variational inference (k̂);
        Giordano,
    Broderick and Jordan 2018 (corrected variances); Gelman, Meng and Stern 1996
    (replicated data).

    Example:
        >>> diagnose(model, result, x, y, held_out=(x_test, y_test))  # doctest: +SKIP
    """
    key = jax.random.key(0) if rng_key is None else checked_key("rng_key", rng_key)
    fitted_model = NumPyroFittedModel(model, guide, data, named, params, objective, held_out, key)
    with fitted_model.running():
        diagnosis = run_checks(fitted_model, num_samples)
    if verbose:
        print(diagnosis)
    return diagnosis
