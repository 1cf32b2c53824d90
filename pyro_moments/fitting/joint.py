"""The loss of a Gaussian with covariances at the optimum of a guide of independent coordinates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from moment_guides.pyro import GaussianGuide
from moment_inference.optimisation import DeterministicLoss, Fit
from pyro_moments.fitting.evaluation_context import FixedParameters
from pyro_moments.fitting.flat_loss import check_deterministic, flat_loss, uncompiled
from pyro_moments.fitting.parameters import Parameters, unconstrained_values
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.objectives.base import Program


def joint_loss(
    program: Program, objective: Any, fit: Fit
) -> tuple[DeterministicLoss, np.ndarray, Any] | None:
    """Return the loss, its parameters, and the sites' places among the coordinates.

    None for a guide whose parameters are not a location and a scale of each site.
    """
    guide = GaussianGuide()
    program = program._replace(guide=guide)
    objective = uncompiled(objective)
    with random_state_restored(), fit.context():
        parameters = Parameters.from_run(partial(program.loss, objective))
        params = guide.from_mean_field(fit.params, parameters.leaves)
        if params.keys() != parameters.leaves.keys():
            return None
        values = unconstrained_values(parameters, params)
        fixed = FixedParameters(parameters, values, program[:2])
        with fixed():
            check_deterministic(partial(program.loss, objective))
            loss = flat_loss(objective, program, parameters).within(fixed)
        return loss, fixed.vector, guide.vector
