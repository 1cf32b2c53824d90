"""The loss of a Gaussian with covariances at the optimum of a guide of independent coordinates."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.optim import Adam

from moment_guides.numpyro import GaussianGuide
from moment_inference.optimisation import DeterministicLoss, Fit, minimiser
from numpyro_moments.evaluation.arguments import Precision
from numpyro_moments.fitting.flat_loss import FlatLoss
from numpyro_moments.objectives.base import Program
from numpyro_moments.svi import SVI

RUNS = 4  # of the loss and its slope, for which it is compiled


def joint_loss(
    program: Program, objective: Any, fit: Fit
) -> tuple[DeterministicLoss, np.ndarray, Any] | None:
    """Return the loss, its parameters, and the sites' places among the coordinates.

    None for a guide whose parameters are not a location and a scale of each site.
    """
    if not hasattr(fit.guide, "prefix"):
        return None
    precision, guide = Precision.of(fit.params), GaussianGuide(prefix=fit.guide.prefix)
    with precision():
        svi = SVI(program.model, guide, Adam(1.0), loss=objective)
        key, args, kwargs = jax.random.key(0), program.args, program.kwargs
        state = svi.init(key, *args, init_params=fit.params, **kwargs)
        params = svi.optim.get_params(state.optim_state)
        if params.keys() != guide.from_mean_field(fit.params, params).keys():
            return None
        program = Program(program.model, guide, args, kwargs, svi.constrain_fn(params))
        loss = FlatLoss(program, svi.loss, svi.constrain_fn, state.rng_key, RUNS)
        minimiser.check_deterministic(*loss.two_values(params))
        flat, unravel = ravel_pytree(params)
        return (
            loss.objective(flat, unravel).within(precision),
            np.asarray(flat, np.float64),
            guide.vector,
        )
