"""Functions of arrays that the array API standard lacks; a trailing [d, d] holds a covariance.

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
import scipy  # not its parts, which SciPy imports where they are first used

from moment_calculus.numerics.derivatives import Pullback, is_eager, with_pullback
from moment_calculus.numerics.private_apis import is_untraced

Array = Any


def device(array: Array) -> Any:
    """Return the device for arrays made beside this one; None in JAX, which moves them itself."""
    # Programs would be compiled anew for arrays that are committed to a device.
    return None if array_api_compat.is_jax_array(array) else getattr(array, "device", None)


def to_numpy(array: Any, dtype: Any = None) -> np.ndarray:
    """Return an array of any framework and device as NumPy array."""
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array, dtype)


def known_numbers(move: Callable[[Array], Array], like: Array) -> np.ndarray | None:
    """Return a move of the numbers 0, 1, … in the shape of an array; None where it is traced."""
    numbers: Any = np.arange(math.prod(like.shape)).reshape(tuple(like.shape))
    try:
        if array_api_compat.is_torch_array(like):
            import torch

            if not is_untraced():
                return None
            return to_numpy(move(torch.as_tensor(numbers, device=like.device)))
        if array_api_compat.is_jax_array(like):
            import jax

            with jax.ensure_compile_time_eval():
                return to_numpy(move(jax.numpy.asarray(numbers)))
        return move(numbers)
    except (RuntimeError, TypeError):  # an index without values
        return None


def outer(left: Array, right: Array) -> Array:
    """Return the outer product of [..., d] and [..., e], [..., d, e]."""
    return left[..., :, None] * right[..., None, :]


def diagonal(matrix: Array) -> Array:
    """Return the diagonal of trailing square matrices: [..., d, d] to [..., d]."""
    if matrix.shape[-1] == 1:
        return matrix[..., 0]
    if array_api_compat.is_jax_array(matrix):  # which XLA compiles sooner than a gather
        *lead, size, _ = matrix.shape
        return matrix.reshape(*lead, size * size)[..., :: size + 1]
    return namespace(matrix).linalg.diagonal(matrix)


def set_diagonal(matrix: Array, values: Any) -> None:
    """Overwrite the diagonal of NumPy or torch matrices [..., d, d] in place."""
    torch = array_api_compat.is_torch_array(matrix)
    view = diagonal(matrix) if torch else np.einsum("...ii->...i", matrix)
    view[...] = values


def diagonal_matrix(vector: Array) -> Array:
    """Return diagonal matrices over the trailing axis: [..., d] to [..., d, d]."""
    return vector[..., None] * identity_like(vector)


def diagonal_blocks(matrix: Array, parts: tuple[int, ...]) -> Array:
    """Return diagonal blocks [..., k, …, s, s] of [..., d, d], for parts (k, …, s)."""
    xp, lead, last = namespace(matrix), tuple(matrix.shape[:-2]), parts[-1]
    count = matrix.shape[-1] // last
    pairs = xp.reshape(matrix, (*lead, count, last, count, last))
    blocks = diagonal(xp.moveaxis(pairs, (-4, -2), (-2, -1)))
    return xp.reshape(xp.moveaxis(blocks, -1, -3), (*lead, *parts, last))


def axis_moved(array: Array, source: int, target: int) -> Array:
    """Move one axis to another place."""
    rank = array.ndim  # torch.moveaxis has no rule under torch's vmap
    source, target = source % rank, target % rank
    if source == target:
        return array
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    return namespace(array).permute_dims(array, tuple(order))


def identity_like(vector: Array) -> Array:
    """Return the identity matrix [d, d] for a vector [..., d], with its dtype and device."""
    xp, size = namespace(vector), vector.shape[-1]
    return xp.eye(size, dtype=vector.dtype, device=device(vector))


def transpose(matrix: Array) -> Array:
    """Swap the two trailing axes."""
    return matrix if tuple(matrix.shape[-2:]) == (1, 1) else matrix.mT


def off_diagonal_mask(vector: Array) -> Array:
    """Return where a [d, d] matrix is off the diagonal, for a vector [..., d]."""
    # made by NumPy, because an array that jax.jit traces has no device
    return constants(np.eye(vector.shape[-1]), vector) == 0


def contract(matrix: Array, covariance: Array) -> Array:
    """Return M C Mᵀ, [..., o, o], for matrices M [o, d] and covariances C [..., d, d]."""
    return matrix @ covariance @ matrix.mT


def times_rows(matrix: Array, rows: Array) -> Array:
    """Return M x for matrices [..., e, d] and x [n, ..., d], [n, ..., e]."""
    if matrix.ndim == 2:
        return rows @ matrix.mT
    return (matrix @ rows[..., None])[..., 0]


def positive_part(array: Array) -> Array:
    """Return the maximum with zero, for variances that rounding made negative."""
    return namespace(array).clip(array, min=0.0)


def shrunk(variance: Array, explained: Array) -> tuple[Array, Array]:
    """Return √(variance / explained) where that is less than 1, and variance − explained ≥ 0."""
    xp, rest = namespace(variance), variance - explained
    too_large, one = rest < 0, namespace(variance).ones_like(rest)
    # roots before the ratio, whose derivative divides by the square of ``explained``
    roots = (safe_scale(xp.where(too_large, part, one)) for part in (variance, explained))
    return next(roots) / next(roots), xp.where(too_large, xp.zeros_like(rest), rest)


def standard_deviation(variance: Array) -> Array:
    """Return the square root of variances, with a zero derivative where they are zero."""
    xp = namespace(variance)
    return xp.sqrt(xp.clip(variance, min=float(xp.finfo(variance.dtype).tiny)))


BLOCK = 20_000  # elements of a matrix that are squared together
LARGE = 8  # number of blocks from which on a loop over them pays
FEW = 2  # maps with at most so many outputs compute them one by one ...
SMALL = 20_000  # ... if the inputs have at most so many elements


def squared(x: Array) -> Array:
    """Return x∘x."""
    return _jax_squared()(x) if array_api_compat.is_jax_array(x) else x * x


@functools.cache
def _jax_squared() -> Callable[[Array], Array]:
    import jax

    # XLA on a CPU takes a third of the time for a kernel with a constant in it, here a
    # bound that holds anyway, than for a product of whole arrays alone.
    bounded = jax.custom_jvp(lambda x: jax.numpy.maximum(abs(x), 0) * abs(x))
    bounded.defjvp(lambda primals, tangents: (bounded(*primals), 2 * primals[0] * tangents[0]))
    return bounded


def squared_products(x: Array, vector: Array) -> Array:
    """Return (x∘x) v for x [..., k] and v [k]."""
    block = BLOCK // max(x.shape[-1], 1)
    if array_api_compat.is_jax_array(x) and len(x.shape) == 2 and x.shape[0] >= LARGE * block > 0:
        import jax

        in_blocks = functools.partial(_jax_squared_products, block=block)
        whole = jax.checkpoint(lambda x, vector: (x * x) @ vector)
        return jax.lax.platform_dependent(x, vector, cpu=in_blocks, default=whole)
    if len(x.shape) == 2 and math.prod(x.shape) >= 2 * LARGE * BLOCK and is_eager(x):
        return _eager_squared_products(x, vector)
    return (x * x) @ vector


def _in_blocks(x: Array, vector: Array) -> tuple[Array, Pullback]:
    """Square one block after another, also in the backward pass, in the processor's cache."""
    size = max(1, LARGE * BLOCK // x.shape[-1])
    chunks = [slice(start, start + size) for start in range(0, len(x), size)]

    def pullback(slope: Array) -> tuple[Array | None, Array]:
        by_vector = sum((x[rows] * x[rows]).mT @ slope[rows] for rows in chunks)
        return (2 * x * slope[:, None] * vector if x.requires_grad else None), by_vector

    return namespace(x).concat([(x[rows] * x[rows]) @ vector for rows in chunks]), pullback


_eager_squared_products = with_pullback(_in_blocks, lambda x, vector: (x * x) @ vector)


def _jax_squared_products(x: Array, vector: Array, block: int) -> Array:
    """Square one block after another, also in the backward pass, in the processor's cache."""
    import jax

    @jax.checkpoint
    def products(vector: Array, start: Array) -> Array:
        rows = jax.lax.dynamic_slice_in_dim(x, start, block)
        return (rows * rows) @ vector

    count = x.shape[0] // block
    starts = block * jax.numpy.arange(count)
    _, products_of_blocks = jax.lax.scan(
        lambda _, start: (None, products(vector, start)), None, starts
    )
    rest = x[count * block :]
    return jax.numpy.concatenate([products_of_blocks.reshape(-1), (rest * rest) @ vector])


def affine(inputs: Array, matrix: Array, shift: Array | None = None) -> Array:
    """Return M x + c, [..., out], for x [..., in], M [..., out, in] and c [out] or None."""
    alike = len(matrix.shape) == 2 and (shift is None or len(shift.shape) == 1)
    if alike and array_api_compat.is_torch_array(matrix):
        return _torch_linear()(inputs, matrix, shift)
    mapped = _product(inputs, matrix)
    return mapped if shift is None else mapped + shift


def affine_squared(inputs: Array, matrix: Array) -> Array:
    """Return (M∘M) x, [..., out]: what M [..., out, in] does to variances x [..., in]."""
    if array_api_compat.is_torch_array(matrix):
        return affine(inputs, matrix * matrix)
    # JAX models hold weights [in, out]: without the transposes XLA would copy the
    # squares.
    return _product(inputs, squared(matrix.mT).mT)


def pairs_of_rows(inputs: Array, left: Array, right: Array) -> Array:
    """Return Σ_k l_ik r_jk x_k, [..., rows, columns], for x [..., in]."""
    rows, columns, size = left.shape[0], right.shape[0], left.shape[1]
    xp = namespace(left)
    pairs = xp.reshape(left[:, None, :] * right[None, :, :], (rows * columns, size))
    mapped = affine(inputs, pairs)
    return xp.reshape(mapped, (*mapped.shape[:-1], rows, columns))


def _product(inputs: Array, matrix: Array) -> Array:
    """Return x Mᵀ; few columns one by one, as XLA is slow for thin matrices."""
    few = len(matrix.shape) == 2 and 1 < matrix.shape[0] <= FEW
    if not few or math.prod(inputs.shape) > SMALL or not array_api_compat.is_jax_array(matrix):
        return inputs @ matrix.mT
    columns = [inputs @ matrix[row] for row in range(matrix.shape[0])]
    return namespace(inputs).stack(columns, axis=-1)


@functools.cache
def _torch_linear() -> Callable[..., Array]:
    import torch

    return torch.nn.functional.linear


def row_sums(x: Array) -> Array:
    """Return the sums over the trailing axis of a JAX array."""
    import jax.numpy as jnp

    # XLA computes a product with ones together with what it sums, but a sum separately.
    return jnp.matmul(x, jnp.ones(x.shape[-1], x.dtype), precision="highest")


def sums_of_rows(x: Array) -> Array:
    """Return the sums over the trailing axis."""
    return row_sums(x) if array_api_compat.is_jax_array(x) else namespace(x).sum(x, axis=-1)


def cholesky(matrix: Array) -> Array:
    """Return lower Cholesky factors [..., d, d]; NaN if not definite (NumPy: error)."""
    xp = namespace(matrix)
    if not array_api_compat.is_torch_array(matrix):
        return xp.linalg.cholesky(matrix)
    import torch

    root, failed = torch.linalg.cholesky_ex(matrix)
    return torch.where(failed[..., None, None] == 0, root, torch.nan)


def solve(matrix: Array, vector: Array) -> Array:
    """Return the solution x [..., d] of A x = b for A [..., d, d] and b [..., d]."""
    columns = vector[..., None]
    if not array_api_compat.is_torch_array(matrix):
        return namespace(matrix).linalg.solve(matrix, columns)[..., 0]
    import torch

    return torch.linalg.solve_ex(matrix, columns)[0][..., 0]


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
    # A clip below the root has a second derivative of 0 · 1e45, NaN in single precision.
    xp, tiny = namespace(variance), variance < TINY_VARIANCE  # XLA takes long for the power −½
    return xp.where(tiny, TINY_VARIANCE**0.5, xp.sqrt(xp.where(tiny, 1.0, variance)))


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


def _dispatch(of_scipy: str, of_torch: str, of_jax: str) -> Callable[..., Array]:
    """Return a function of arrays that calls their framework's implementation."""

    def function(*x: Array) -> Array:
        if array_api_compat.is_torch_array(x[-1]):
            return _torch_special(of_torch)(*x)
        if array_api_compat.is_jax_array(x[-1]):
            return _jax_special(of_jax)(*x)
        return getattr(scipy.special, of_scipy)(*x)

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
gammaincc = _dispatch("gammaincc", "gammaincc", "gammaincc")  # torch: x alone has a gradient
betainc_but_of_torch = _dispatch("betainc", "betainc", "betainc")


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
        return tuple(torch.tensor(c, dtype=dtype, device="cpu") for c in coefficients)
