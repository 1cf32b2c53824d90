"""Correct the moments of a trained guide by linear response."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger

from moment_calculus.optimisation.batches import Arguments
from moment_calculus.predictions.site import checked_count
from moment_calculus.response.errors import check_dictionary
from moment_calculus.response.inverse_curvature import TOLERANCE
from moment_calculus.response.response import Response
from pyro_moments.fitting.flat_loss import flat_loss, uncompiled
from pyro_moments.fitting.parameters import (
    double_precision,
    has_float64,
    parameters_to_float64,
    restore_parameters,
    to_float64,
)
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.objectives.elbo import DeterministicELBO
from pyro_moments.response.evaluation_context import FixedParameters, unconstrained_values
from pyro_moments.response.problem import PyroProblem


def linear_response(
    model: Callable,
    guide: Callable,
    *data: Any,
    params: dict[str, Any] | None = None,
    objective: Any = None,
    tolerance: float = TOLERANCE,
    float64: bool = False,
    **named: Any,
) -> LinearResponse:
    """Correct the moments of a trained guide by linear response.

    The moments of a mean-field guide are those of a posterior whose dependences are
    ignored: of regression coefficients the standard deviations may be too small by two
    orders of magnitude, while the means are right. How these means respond to a tilt of
    the posterior is its covariance: with H the Hessian of the loss by the guide's
    parameters, and G the derivative of any expectation by them, it is G H⁻¹ Gᵀ. It is
    exact where the posterior is Gaussian. Of guides with a full covariance it equals
    theirs there, and adds the skewness of the posterior elsewhere.

    Up to 3000 parameters H is dense. Beyond, where parameters of the elements of a plate
    meet through those of a few other sites alone, H is an arrow, and everything is linear
    in their number; otherwise each quantity takes a solution by conjugate gradients.
    Parameters of the model that are trained, ``param`` sites, respond like latent sites.

    Args:
        model: Pyro model.
        guide: trained guide with Gaussian sites: ``DVIGuide``, the host's automatic
            Gaussian guides, point estimates (whose response is Laplace's approximation),
            or your own.
        *data: what it was trained on, arguments of model and guide.
        objective: the loss that it was trained by; by default ``DeterministicELBO()``.
        tolerance: Newton decrement in nats up to which the parameters count as an
            optimum: every mean is within sqrt(2 · decrement) corrected standard
            deviations of its own there.
        float64: whether to compute in double precision; so it is anyway where parameters
            are doubles.
        params: trained parameters as ``fit(...).params`` has them; by default the current
            ones. They are copied: training the guide further changes no result.
        **named: arguments of model and guide by name.

    Returns:
        The corrected moments: a ``LinearResponse``.

    Raises:
        NotAnOptimum: if the parameters are none; the message names the sites, the Newton
            decrement or the direction of negative curvature, and the remedy.
        ValueError: if the loss is random, by draws, sampled sites or subsamples, or
            ``params`` are not those of model and guide.
        UnsupportedMoments: if a site has no Gaussian coordinates.

    Warns:
        NarrowerVarianceWarning: where corrected variances are smaller than the guide's.

    Source: Giordano, Broderick and Jordan 2018, Covariances, robustness, and variational
        Bayes.

    Example:
        >>> result = fit(model, guide, x, y, method="newton")  # doctest: +SKIP
        >>> response = linear_response(model, guide, x, y)  # doctest: +SKIP
        >>> response.standard_deviation("weight")  # doctest: +SKIP
    """
    problem = problem_of(model, guide, (data, named), params, objective, float64)
    with problem.precision():
        return LinearResponse(problem, tolerance)


def problem_of(
    model: Callable,
    guide: Callable,
    arguments: Arguments,
    params: dict[str, Any] | None = None,
    objective: Any = None,
    float64: bool = False,
) -> PyroProblem:
    """Return model and guide at trained parameters, the current ones if ``params`` is None."""
    _check_runs_alone(guide)
    if params is not None:
        check_dictionary(params)
    given = [torch.as_tensor(value) for value in (params or {}).values()]
    double = float64 or has_float64(guide) or any(part.dtype is torch.float64 for part in given)
    data, named = arguments
    if double:
        data, named = to_float64(data), to_float64(named)
    elbo = uncompiled(objective or DeterministicELBO())
    with random_state_restored(), double_precision() if double else contextlib.nullcontext():
        return _problem(elbo, model, guide, (data, named), params, double)


def _problem(
    elbo: Any,
    model: Callable,
    guide: Callable,
    arguments: Arguments,
    params: dict[str, Any] | None,
    double: bool,
) -> PyroProblem:
    """Return the problem at parameters; the precision of the parameters stays as it was."""
    data, named = arguments
    first = lambda: elbo.differentiable_loss(model, guide, *data, **named)  # noqa: E731
    changed = parameters_to_float64(first) if double else []
    try:
        loss = flat_loss(elbo, model, guide, data, named)
        copies = unconstrained_values(loss.parameters, params)
    finally:
        restore_parameters(changed)
    if not copies:
        raise ValueError("model and guide have no parameters: there is nothing that could respond")
    fixed_parameters = FixedParameters(loss.parameters, copies, (model, guide))
    return PyroProblem(elbo, model, guide, data, named, loss, fixed_parameters)


def _check_runs_alone(guide: Callable) -> None:
    if isinstance(poutine.unwrap(guide), Messenger):
        raise ValueError(
            f"{type(guide).__name__} runs the model itself, so that linear response cannot ask for "
            "its sites alone: use DVIGuide or AutoNormal"
        )


class LinearResponse(Response):
    """Corrected moments of a posterior, and how they depend on priors and data.

    Sites are named as in the model. Standard deviations, covariances and correlations are
    those of the sites on the unconstrained space, where a guide is Gaussian: of
    logarithms for positive sites. ``interval``, ``sample`` and ``moments`` are on the
    sites' supports.

    Where a scale is hardly known, its logarithm is skewed, and draws have the long tail
    of a log-normal. Measured on the eight schools: deviations of μ and log τ are 0.98 and
    0.97 of the reference's, those of the schools' effects μ + τ z 1.5 by draws and 0.8 to
    0.9 by ``moments``; with ``importance_weights=True`` 0.96 to 1.02 by both.
    """

    def sample(self, n: int, importance_weights: bool = False) -> dict[str, torch.Tensor]:
        """Draw from the corrected posterior, with torch's global generator.

        Args:
            n: how many draws.
            importance_weights: whether draws are resampled by Pareto-smoothed importance
                weights p / q, with replacement from twice as many, so that they are draws
                of the posterior itself. Measured on the eight schools: standard
                deviations of the schools' effects and of τ are 0.98 to 1.03 of the
                reference's with weights, 1.41 to 2.05 without.

        Returns:
            Tensors [n, ...] by latent site, on the sites' supports: what
            ``pyro.infer.Predictive(model, posterior_samples=...)`` takes.

        Raises:
            ValueError: if ``n`` is not a positive number.
            UnsupportedMoments: if importance weights cannot be trusted: the message tells
                k̂.
        """
        count = checked_count(n)
        seed = int(torch.randint(2**62, ()))
        draws = self.resampled_draws if importance_weights else self.plain_draws
        return draws(np.random.default_rng(seed), count)
