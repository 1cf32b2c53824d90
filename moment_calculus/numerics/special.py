"""Functions that the array API standard lacks, on NumPy, torch and JAX arrays.

A framework is imported only when one of its arrays is passed.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import array_api_compat
import numpy as np
import scipy.special

from moment_calculus.numerics.derivatives import elementwise, is_eager

Array = Any

__all__ = [
    "TINY_VARIANCE",
    "constants",
    "elementwise",
    "erf",
    "erfc",
    "erfcx",
    "expit",
    "log1p",
    "log_softmax",
    "logsumexp",
    "namespace",
    "ndtr",
    "ndtri",
    "safe_scale",
    "stop_gradient",
]

TINY_VARIANCE = 1e-30  # its root and the inverse of its root are normal float32 numbers


def namespace(*arrays: Array) -> Any:
    """Return the array API namespace of arrays of one framework; numbers are ignored."""
    if len(arrays) == 1:
        kind: Any = type(arrays[0])
        return _namespace_of(kind) or array_api_compat.array_namespace(arrays[0])
    return array_api_compat.array_namespace(*arrays)


@functools.cache
def _namespace_of(kind: type) -> Any:
    """Return the namespace of torch or NumPy, cached: eager programs look it up often."""
    module = kind.__module__.partition(".")[0]
    is_supported = module in ("numpy", "torch")
    return importlib.import_module(f"array_api_compat.{module}") if is_supported else None


def constants(values: Any, like: Array) -> Array:
    """Copy fixed numbers to the framework, the dtype and the device of another array."""
    xp = namespace(like)
    values = np.asarray(values)
    if array_api_compat.is_torch_array(like):
        return xp.asarray(values, dtype=like.dtype, device=like.device)
    return xp.asarray(values, dtype=like.dtype)


def safe_scale(variance: Array) -> Array:
    """Return the standard deviation, kept above 1e-15 so that quotients stay finite."""
    xp = namespace(variance)
    return xp.sqrt(xp.clip(variance, min=TINY_VARIANCE))  # XLA takes long for the power −½


def has_double(array: Array) -> bool:
    """Return whether float64 exists beside an array: not in JAX without jax_enable_x64."""
    if array_api_compat.is_jax_array(array):
        import jax

        return jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    return getattr(array_api_compat.device(array), "type", "") != "mps"


def to_float64(array: Array) -> Array:
    """Return the numbers in float64, where the framework and the device have it."""
    xp = namespace(array)
    return xp.astype(array, xp.float64, copy=False) if has_double(array) else array


def cast_clipped(array: Array, like: Array) -> Array:
    """Return the numbers in the dtype of ``like``, clipped to 1/4 of its range."""
    xp = namespace(array)
    largest = float(xp.finfo(like.dtype).max) / 4
    return xp.astype(xp.clip(array, min=-largest, max=largest), like.dtype, copy=False)


def restore_infinities(array: Array) -> Array:
    """Return ±∞ where :func:`cast_clipped` clipped, for results that are final."""
    xp = namespace(array)
    clipped = xp.abs(array) >= float(xp.finfo(array.dtype).max) / 4
    return xp.where(clipped, xp.sign(stop_gradient(array)) * math.inf, array)


def stop_gradient(array: Array) -> Array:
    """Return the numbers as constants of differentiation."""
    if array_api_compat.is_torch_array(array):
        return array.detach()
    if array_api_compat.is_jax_array(array):
        import jax

        return jax.lax.stop_gradient(array)
    return array


def is_traced_once(array: Array) -> bool:
    """Return whether programs on such arrays are traced once and run often."""
    return array_api_compat.is_jax_array(array)


def _dispatch(of_scipy: str, of_torch: str, of_jax: str) -> Callable[[Array], Array]:
    """Return a function of one array that calls its framework's implementation."""

    def function(x: Array) -> Array:
        if array_api_compat.is_torch_array(x):
            return _torch_special(of_torch)(x)
        if array_api_compat.is_jax_array(x):
            return _jax_special(of_jax)(x)
        return getattr(scipy.special, of_scipy)(x)

    function.__name__ = function.__qualname__ = of_scipy
    return function


@functools.cache
def _torch_special(name: str) -> Callable[[Array], Array]:
    import torch

    return getattr(torch.special, name)


@functools.cache
def _jax_special(name: str) -> Callable[[Array], Array]:
    import jax.scipy.special

    return _jax_erfcx if name == "erfcx" else getattr(jax.scipy.special, name)


erf = _dispatch("erf", "erf", "erf")
erfc = _dispatch("erfc", "erfc", "erfc")
erfcx = _dispatch("erfcx", "erfcx", "erfcx")
expit = _dispatch("expit", "expit", "expit")
digamma = _dispatch("digamma", "digamma", "digamma")
gammaln = _dispatch("gammaln", "gammaln", "gammaln")
log_ndtr = _dispatch("log_ndtr", "log_ndtr", "log_ndtr")
ndtri = _dispatch("ndtri", "ndtri", "ndtri")


def log1p(x: Array) -> Array:
    """Return log(1 + x) for x ≥ 0, as each framework runs it fastest; not differentiable."""
    xp = namespace(x)
    if not array_api_compat.is_jax_array(x):
        return xp.log1p(x)
    # Kahan's quotient takes XLA half the time of its own function.
    rise = (1 + x) - 1
    return xp.where(rise == 0, x, xp.log(1 + x) * x / xp.where(rise == 0, xp.ones_like(x), rise))


def ndtr(x: Array) -> Array:
    """Return the normal distribution function, accurate in the lower tail."""
    return 0.5 * erfc(x * -math.sqrt(0.5))


def logsumexp(x: Array, *, axis: int = -1) -> Array:
    """Return log Σ eˣ over one axis of finite values, without overflow."""
    xp = namespace(x)
    largest = stop_gradient(xp.max(x, axis=axis, keepdims=True))  # its gradient would cancel
    total = xp.log(xp.sum(xp.exp(x - largest), axis=axis, keepdims=True))
    return xp.squeeze(largest + total, axis=axis)


def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """Return the logarithm of the softmax of finite logits over one axis."""
    return x - namespace(x).expand_dims(logsumexp(x, axis=axis), axis=axis)


@functools.cache
def _erfcx_series(degree: int = 29, centre: float = 3.0) -> np.ndarray:
    """Return Chebyshev coefficients of (1 + t) erfcx(t) in (t − c)/(t + c)."""

    def target(u: np.ndarray) -> np.ndarray:
        t = centre * (1 + u) / (1 - u)
        return (1 + t) * scipy.special.erfcx(t)

    return np.polynomial.chebyshev.chebinterpolate(target, degree)


def _jax_erfcx(x: Array) -> Array:
    """Return exp(x²) erfc(x), which JAX lacks; in float32 it overflows for x < −9."""
    xp = namespace(x)
    t = xp.abs(x)
    u = 1 - 6.0 / (t + 3.0)
    ahead, behind = xp.zeros_like(u), xp.zeros_like(u)
    for coefficient in _erfcx_series()[:0:-1]:
        ahead, behind = float(coefficient) + 2 * u * ahead - behind, ahead
    right = (float(_erfcx_series()[0]) + u * ahead - behind) / (1 + t)
    negative = xp.where(x < 0, x, xp.zeros_like(x))
    return xp.where(x < 0, 2 * xp.exp(negative * negative) - right, right)


# ---------------------------------------------------------------------------------------------
# Polynomials with fixed coefficients


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate a polynomial by Horner's rule; the coefficient of x⁰ comes first."""
    if array_api_compat.is_torch_array(x) and is_eager(x):
        return _in_torch(coefficients, x)
    *lower, total = coefficients
    for coefficient in reversed(lower):
        total = total * x + coefficient
    return total


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
