"""Whether a fit can be trusted, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpyro.infer.elbo import ELBO

from moment_calculus.criticism.diagnosis.diagnosis import diagnosed
from moment_calculus.criticism.diagnosis.findings import Diagnosis
from moment_calculus.criticism.diagnosis.wording import DIAGNOSE, OPTIONS, RESULT
from moment_calculus.hosts.docstrings import documented
from numpyro_moments.criticism.subject import NumPyroSubject
from numpyro_moments.evaluation.keys import checked_key


@documented("NumPyro", arguments=DIAGNOSE, options=OPTIONS, result=RESULT)
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

    {arguments}
        params: trained parameters of guide and model, where ``guide`` is no ``Fit``.
        {options}
        rng_key: random key; by default always the same.
        **named: arguments of the model by name.

    {result}

    Example:
        >>> diagnose(model, result, x, y, held_out=(x_test, y_test))  # doctest: +SKIP
    """
    key = jax.random.key(0) if rng_key is None else checked_key("rng_key", rng_key)
    subject = NumPyroSubject(model, guide, data, named, params, objective, held_out, key)
    with subject.running():
        found = diagnosed(subject, num_samples)
    if verbose:
        print(found)
    return found
