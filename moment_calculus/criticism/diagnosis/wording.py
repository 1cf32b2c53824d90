"""Docstring templates of ``diagnose``, for both frameworks."""

from __future__ import annotations

DIAGNOSE = """
Looks, one after the other, whether the parameters are an optimum; at the loss by draws, if ``fit``
made them; at the Pareto shape k̂ of the importance weights of the guide and of its linear response,
together with the share of the draws that they are worth; whether standard deviations of both are
those of weighted draws, where weights can be trusted, also on the sites' supports; whether the data
contradict the prior; which data are too influential for leave-one-out; whether predictions are
calibrated, and data replicated by the model like those observed. All weights are of the same draws.

Args:
    model: {host} model, unmodified.
    guide: trained guide, or what ``fit`` returned.
    *data: what it was trained on, arguments of the model.
"""

OPTIONS = """
held_out: other arguments of the model, with observations that were not trained on, a tuple; by
    default calibration is that on the data, where predictions look better than they are.
objective: the loss that the guide was trained by; by default ``DeterministicELBO()``.
num_samples: draws of the guide, and of linear response, that importance weights are of. Their k̂
    is an estimate: between draws of 4000 it varies by about 0.1.
verbose: whether to print the result.
"""

RESULT = """
Returns:
    A ``Diagnosis``: its ``findings``, each with a verdict, what it means and what to do;
    ``problems`` are those that are not good. It prints as one table, with words below.

Raises:
    ImportError: if ArviZ is not there.
    ValueError: if draws are not those of the model's latent sites.

Source: Yao et al. 2018, Yes, but did it work?: evaluating variational inference (k̂); Giordano,
Broderick and Jordan 2018 (corrected variances); Gelman, Meng and Stern 1996 (replicated data).
"""
