"""Special functions that the array API standard lacks, on NumPy, torch and JAX arrays.

A framework is imported only when one of its arrays arrives.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat
import numpy as np
import scipy.special

Array = Any
Partials = Callable[..., Sequence[Sequence[Array]]]

TINY_VARIANCE = 1e-30  # its root and the inverse of its root are normal float32 numbers


def namespace(*arrays: Array) -> Any:
    """Array API namespace of the arrays; Python numbers are ignored.

    Args:
        arrays: arrays of one framework.

    Raises:
        TypeError: if no argument is an array, or if frameworks are mixed.
    """
    if len(arrays) == 1:
        kind: Any = type(arrays[0])
        return _namespace_of(kind) or array_api_compat.array_namespace(arrays[0])
    return array_api_compat.array_namespace(*arrays)


@functools.cache
def _namespace_of(kind: type) -> Any:
    """The namespace of torch tensors and NumPy arrays: the look-up is a cost in eager programs."""
    module = kind.__module__.partition(".")[0]
    known = module in ("numpy", "torch")
    return importlib.import_module(f"array_api_compat.{module}") if known else None


def constants(values: Any, like: Array) -> Array:
    """Copy fixed numbers into the framework, the dtype and the device of another array.

    Args:
        values: numbers that NumPy understands.
        like: the array to imitate.

    Returns:
        The array of the shape of ``values``.
    """
    xp = namespace(like)
    values = np.asarray(values)
    if array_api_compat.is_torch_array(like):
        return xp.asarray(values, dtype=like.dtype, device=like.device)
    return xp.asarray(values, dtype=like.dtype)


def safe_scale(variance: Array) -> Array:
    """Standard deviation, kept above 1e-15 so that quotients and gradients stay finite.

    Args:
        variance: variances, zero allowed; there the gradient is zero.
    """
    return namespace(variance).where(variance > TINY_VARIANCE, variance, TINY_VARIANCE) ** 0.5


def double(array: Array) -> Array:
    """The same numbers in double precision, where the framework and the device have it.

    Args:
        array: floating-point numbers.
    """
    xp = namespace(array)
    if array_api_compat.is_jax_array(array):
        import jax

        return xp.astype(array, jax.dtypes.canonicalize_dtype(np.float64))
    if getattr(array_api_compat.device(array), "type", "") == "mps":
        return array
    return xp.astype(array, xp.float64, copy=False)


def settled(array: Array, like: Array) -> Array:
    """The same numbers in the precision of another array, held within its finite range.

    Args:
        array: floating-point numbers.
        like: the array to imitate; beyond a quarter of its range the gradient is zero.
    """
    xp = namespace(array)
    largest = float(xp.finfo(like.dtype).max) / 4
    return xp.astype(xp.clip(array, min=-largest, max=largest), like.dtype, copy=False)


def stop_gradient(array: Array) -> Array:
    """The same numbers, held fixed by differentiation.

    Args:
        array: any array.
    """
    if array_api_compat.is_torch_array(array):
        return array.detach()
    if array_api_compat.is_jax_array(array):
        import jax

        return jax.lax.stop_gradient(array)
    return array


def _dispatch(of_scipy: str, of_torch: str, of_jax: str) -> Callable[[Array], Array]:
    """Function of one array that looks its implementation up by the array's framework."""

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
gammaln = _dispatch("gammaln", "gammaln", "gammaln")
log_ndtr = _dispatch("log_ndtr", "log_ndtr", "log_ndtr")


def ndtr(x: Array) -> Array:
    """Standard normal distribution function, relatively accurate in the lower tail.

    Args:
        x: any array.
    """
    return 0.5 * erfc(x * -math.sqrt(0.5))


def logsumexp(x: Array, *, axis: int = -1) -> Array:
    """log Σ eˣ over one axis, without overflow.

    Args:
        x: finite values.
        axis: the axis that is summed over.
    """
    xp = namespace(x)
    largest = xp.max(x, axis=axis, keepdims=True)
    total = xp.log(xp.sum(xp.exp(x - largest), axis=axis, keepdims=True))
    return xp.squeeze(largest + total, axis=axis)


def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """Logarithm of the softmax over one axis.

    Args:
        x: finite logits.
        axis: the axis of the classes.
    """
    return x - namespace(x).expand_dims(logsumexp(x, axis=axis), axis=axis)


@functools.cache
def _erfcx_series(degree: int = 29, centre: float = 3.0) -> np.ndarray:
    """Chebyshev coefficients of erfcx in (t - c)/(t + c), after the factor 1/(1 + t)."""

    def target(u: np.ndarray) -> np.ndarray:
        t = centre * (1 + u) / (1 - u)
        return (1 + t) * scipy.special.erfcx(t)

    return np.polynomial.chebyshev.chebinterpolate(target, degree)


def _jax_erfcx(x: Array) -> Array:
    """exp(x²) erfc(x) for JAX, which has none; overflows for x below about -9 in float32."""
    xp = namespace(x)
    t = xp.abs(x)
    u = 1 - 6.0 / (t + 3.0)
    ahead, behind = xp.zeros_like(u), xp.zeros_like(u)
    for coefficient in _erfcx_series()[:0:-1]:
        ahead, behind = float(coefficient) + 2 * u * ahead - behind, ahead
    right = (float(_erfcx_series()[0]) + u * ahead - behind) / (1 + t)
    negative = xp.where(x < 0, x, xp.zeros_like(x))
    return xp.where(x < 0, 2 * xp.exp(negative * negative) - right, right)


def elementwise(function: Callable[..., Any], partials: Partials) -> Callable[..., Any]:
    """Give an elementwise function its derivatives in closed form.

    Differentiable as often as ``partials`` is, under torch autograd, torch.func and JAX alike.

    Args:
        function: elementwise function of k broadcastable arrays, to one array or a tuple.
        partials: function of the same arrays; for each output a row with its k partial
            derivatives, which must be finite.

    Returns:
        The differentiable function, of k positional arrays.
    """

    @functools.cache
    def for_torch() -> Callable[..., Any]:
        return _torch_elementwise(function, partials)

    @functools.cache
    def for_jax() -> Callable[..., Any]:
        return _jax_elementwise(function, partials)

    @functools.wraps(function)
    def differentiable(*arrays: Array) -> Any:
        if any(array_api_compat.is_torch_array(array) for array in arrays):
            return for_torch()(*arrays)
        if any(array_api_compat.is_jax_array(array) for array in arrays):
            return for_jax()(*arrays)
        return function(*arrays)

    return differentiable


def _as_tuple(outputs: Any) -> tuple[Array, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _tangents(rows: Any, tangents: Sequence[Any]) -> list[Array]:
    """Directional derivative of each output; a tangent of None stands for zero."""
    return [sum(p * t for p, t in zip(row, tangents, strict=True) if t is not None) for row in rows]


def _torch_elementwise(function: Callable[..., Any], partials: Partials) -> Callable[..., Any]:
    import torch

    class Elementwise(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*arrays: Array) -> Any:
            return function(*arrays)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Array) -> tuple[Array | None, ...]:
            arrays = ctx.saved_tensors
            columns = zip(*partials(*arrays), strict=True)
            return tuple(
                _tangents([column], gradients)[0].sum_to_size(array.shape) if needed else None
                for column, array, needed in zip(columns, arrays, ctx.needs_input_grad, strict=True)
            )

        @staticmethod
        def jvp(ctx: Any, *tangents: Array | None) -> Any:
            results = _tangents(partials(*ctx.saved_tensors), tangents)
            return results[0] if len(results) == 1 else tuple(results)

    # torch inspects the signature at every call unless it is written down.
    arrays = inspect.Parameter("arrays", inspect.Parameter.VAR_POSITIONAL)
    Elementwise.forward.__signature__ = inspect.Signature([arrays])  # type: ignore[attr-defined]
    return Elementwise.apply


def _jax_elementwise(function: Callable[..., Any], partials: Partials) -> Callable[..., Any]:
    import jax

    wrapped = jax.custom_jvp(lambda *arrays: function(*arrays))

    @wrapped.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        outputs = wrapped(*primals)
        slopes = [
            jax.numpy.broadcast_to(slope, output.shape).astype(output.dtype)
            for slope, output in zip(
                _tangents(partials(*primals), tangents), _as_tuple(outputs), strict=True
            )
        ]
        return outputs, (tuple(slopes) if isinstance(outputs, tuple) else slopes[0])

    return wrapped
