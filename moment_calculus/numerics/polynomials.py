"""Evaluate polynomials with fixed coefficients on NumPy, torch and JAX arrays.

A framework is imported only when one of its arrays is passed.
"""

from __future__ import annotations

import functools
from typing import Any

import array_api_compat

from moment_calculus.numerics.derivatives.pullbacks import is_eager

Array = Any


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate a polynomial by Horner's rule; the coefficient of x⁰ comes first."""
    if array_api_compat.is_torch_array(x) and _is_plain(x):
        return _in_torch(coefficients, x)
    *lower, total = coefficients
    for coefficient in reversed(lower):
        total = total * x + coefficient
    return total


def _is_plain(x: Array) -> bool:
    import torch

    return x.dtype in (torch.float32, torch.float64) and is_eager(x)


def _in_torch(coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate a polynomial of a torch tensor with one operation per coefficient."""
    import torch

    # The constants are tensors: a number would be copied into a new one by every
    # operation.
    *lower, total = _constants(coefficients, x.dtype)
    for coefficient in reversed(lower):
        total = torch.addcmul(coefficient, total, x)
    return total


@functools.cache
def _constants(coefficients: tuple[float, ...], dtype: Any) -> tuple[Array, ...]:
    import torch

    with torch.inference_mode(False):  # the cache also serves differentiated programs
        return tuple(torch.tensor(coefficient, dtype=dtype) for coefficient in coefficients)
