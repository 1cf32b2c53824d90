"""Diagnose in words whether a fit can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.criticism.diagnosis.diagnosis import diagnosed
from moment_calculus.criticism.diagnosis.findings import Diagnosis
from moment_calculus.criticism.diagnosis.wording import DIAGNOSE, OPTIONS, RESULT
from moment_calculus.hosts.docstrings import documented
from pyro_moments.criticism.subject import PyroSubject


@documented("Pyro", arguments=DIAGNOSE, options=OPTIONS, result=RESULT)
def diagnose(
    model: Callable,
    guide: Any,
    *data: Any,
    held_out: tuple | None = None,
    objective: Any = None,
    num_samples: int = 4000,
    verbose: bool = True,
    **named: Any,
) -> Diagnosis:
    """Tell in words whether a trained guide can be trusted for its model and data.

    {arguments}
        {options}
        **named: arguments of the model by name.

    {result}

    Example:
        >>> diagnose(model, result, x, y, held_out=(x_test, y_test))  # doctest: +SKIP
    """
    subject = PyroSubject(model, guide, data, named, objective, held_out)
    found = diagnosed(subject, num_samples)
    if verbose:
        print(found)
    return found
