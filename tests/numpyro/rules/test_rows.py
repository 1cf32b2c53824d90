"""Every primitive with a moment rule also runs by draws, and keeps apart the rows that it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special

from moment_calculus.operations.elementwise import elementary
from moment_inference.particles.drawn_sites import SharedDrawNeeded
from numpyro_moments.particles.evaluation import Evaluation
from numpyro_moments.particles.undrawn import Rows
from numpyro_moments.rules.table import PROGRAMS, RULES
from tests.checks.jaxprs import by_numpy

H = np.array([[0.3, 0.6, 0.2, 0.8], [0.5, 0.1, 0.7, 0.4], [0.9, 0.35, 0.15, 0.55]], np.float32)
KERNEL = np.ones((1, 1, 2), np.float32)


def elementwise(h):
    """All functions of one number, in one program."""
    plain = jnp.abs, jnp.cbrt, jnp.cos, jnp.cosh, jnp.sin, jnp.sinh, jnp.square, jnp.sqrt, jnp.tanh
    more = jnp.arccos, jnp.arcsin, jnp.arcsinh, jnp.arctan, jnp.exp, jnp.exp2, jnp.expm1, jnp.log
    rest = jnp.log1p, jnp.sign, lax.rsqrt, lax.erf, lax.erfc, lax.lgamma, special.digamma
    parts = [f(h) for f in (*plain, *more, *rest, jax.nn.sigmoid, lambda h: jnp.arccosh(1 + h))]
    total = sum(parts) / (1 + h) - h**3 + h**0.7 + jnp.minimum(-h, lax.clamp(0.1, h, 0.5))
    total = total + lax.reduce_precision(h, 8, 23) + lax.stop_gradient(h).astype(jnp.float32)
    return total + jnp.maximum(h, jnp.real(h)) * jnp.isfinite(h)


def comparisons(h):
    holds = ((h > 0.3) & (h < 0.7)) | ~(h >= 0.5) ^ (h <= 0.2)
    return jnp.where(holds | (h == 0.3) & (h != 0.2), h, 0.0)


def loop(h):
    return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, jnp.tanh(s[1])), (0, h))[1]


@jax.custom_vjp
def own_slope(h):
    return jnp.tanh(h)


own_slope.defvjp(lambda h: (jnp.tanh(h), h), lambda h, slope: (slope,))


# By name: a function of rows, and whether it keeps them apart (where it is known to).
SERVED = {*RULES, *PROGRAMS}  # as they are before tests add rules of their own
FUNCTIONS = {
    "elementwise": (elementwise, True),
    "comparisons": (comparisons, True),
    "transposed": (lambda h: h.T[:, :, None].squeeze(-1), True),
    "reshaped": (lambda h: h.reshape(3, 2, 2)[..., 0], True),
    "slices": (lambda h: lax.rev(h[:, 1:], (1,)), True),
    "other rows": (lambda h: h[1:] - h[:-1], False),
    "reversed rows": (lambda h: lax.rev(h, (0,)), False),
    "padded": (lambda h: lax.pad(h, 0.0, ((0, 0, 0), (1, 1, 0))), True),
    "padded rows": (lambda h: lax.pad(h, 0.0, ((1, 0, 0), (0, 0, 0))), False),
    "concatenated": (lambda h: jnp.concatenate([h, 2 * h], 1), True),
    "concatenated rows": (lambda h: jnp.concatenate([h, 2 * h], 0), False),
    "stacked": (lambda h: jnp.stack([h, h**2], -1), True),
    "split": (lambda h: sum(jnp.split(h, 2, 1)), False),  # its primitive counts as mixing
    "tiled": (lambda h: jnp.tile(h, (1, 2)), False),  # so does this one
    "sums": (lambda h: h.sum(1) + h.max(1) * h.min(1) + h.prod(1), True),
    "sums of rows": (lambda h: h.sum(0), False),
    "the largest": (lambda h: jnp.argmax(h, 1) + jnp.argmin(h, 1), True),
    "the largest row": (lambda h: jnp.argmax(h, 0), False),
    "cumulative": (
        lambda h: h.cumsum(1) + h.cumprod(1) + lax.cummax(h, 1) + lax.cummin(h, 1),
        True,
    ),
    "cumulative logarithms": (lambda h: lax.cumlogsumexp(h, 1), True),
    "cumulative rows": (lambda h: h.cumsum(0), False),
    "sorted": (lambda h: jnp.sort(h, 1), True),
    "sorted rows": (lambda h: jnp.sort(h, 0), False),
    "the top": (lambda h: lax.top_k(h, 2)[0], False),
    "products": (lambda h: h @ np.ones((4, 2), np.float32), True),
    "products of rows": (lambda h: np.ones((2, 3), np.float32) @ h, False),
    "covariances": (lambda h: h @ h.T, False),
    "picked": (lambda h: h[:, np.array([0, 2])], False),
    "picked rows": (lambda h: h[np.array([2, 0, 1])], False),
    "picked by row": (lambda h: jnp.take_along_axis(h, np.array([[0], [2], [1]]), 1), True),
    "set": (lambda h: h.at[:, 0].set(0.0).at[:, 1].add(1.0), False),
    "updated": (lambda h: lax.dynamic_update_slice(h, h[:1], (1, 0)), False),
    "cut": (lambda h: lax.dynamic_slice(h, (1, 0), (2, 4)), False),
    "convolved": (lambda h: lax.conv_general_dilated(h[:, None], KERNEL, (1,), "VALID"), True),
    "pooled": (
        lambda h: (
            lax.reduce_window(h, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID")
            + lax.reduce_window(h, jnp.inf, lax.min, (1, 2), (1, 2), "VALID")
            + lax.reduce_window(h, 0.0, lax.add, (1, 2), (1, 2), "VALID")
        ),
        True,
    ),
    "pooled rows": (lambda h: lax.reduce_window(h, 0.0, lax.add, (2, 1), (1, 1), "VALID"), False),
    "softmax": (lambda h: jax.nn.softmax(h, 1) + jax.nn.logsumexp(h, 1, keepdims=True), True),
    "softmax of rows": (lambda h: jax.nn.softmax(h, 0), False),
    "calls": (lambda h: jax.nn.relu(jax.jit(jnp.tanh)(h)) + jax.nn.silu(h), True),
    "own slope": (own_slope, True),
    "checkpoint": (jax.checkpoint(jnp.tanh), False),
    "scan": (lambda h: lax.scan(lambda s, x: (s + x, s * x), h[0], h)[1], False),
    "loop": (loop, False),
    "branches": (lambda h: lax.cond(h.sum() > 1, jnp.tanh, jnp.sin, h), False),
    "factor": (lambda h: jnp.linalg.cholesky(h @ h.T + np.eye(3, dtype=np.float32)), False),
}
# Refused, of several devices, of an escape, of a derivative, or written by other functions of JAX.
LEFT_OUT = {
    *elementary.UNSUPPORTED,
    *"debug_callback debug_print io_callback pure_callback pvary reshard shard_map".split(),
    *"sharding_constraint optimization_barrier name copy_p select_and_gather_add".split(),
    *"select_and_scatter select_and_scatter_add closed_call core_call add_any".split(),
    *"copy expand_dims real reduce_window stack unstack".split(),
}


def primitives(jaxpr):
    inner = [getattr(part, "jaxpr", part) for e in jaxpr.eqns for part in jax.tree.leaves(e.params)]
    found = {equation.primitive.name for equation in jaxpr.eqns}
    return found.union(*(primitives(part) for part in inner if hasattr(part, "eqns")))


def drawn(function, h):
    """The result of rows with noise of their own, and their axis in it; None if they are mixed."""
    axes = []

    def run(h):
        try:
            (result,) = Evaluation().run(jax.make_jaxpr(function)(h), [Rows(h, 0, {"site"})])
        except SharedDrawNeeded:
            return function(h)
        axes.append(result.axis)
        return result.array

    return by_numpy(run)(h), axes[0] if axes else None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_are_kept_apart_where_that_is_said(name):
    function, apart = FUNCTIONS[name]
    result, axis = drawn(function, H)
    assert (axis is not None) == apart
    if apart:
        other, _ = drawn(function, H + np.array([[0.0], [0.05], [0.0]], np.float32))
        np.testing.assert_array_equal(
            *(np.take(part, [0, 2], axis) for part in (result, other)), strict=True
        )


def test_every_primitive_with_a_rule_is_among_them():
    found = [primitives(jax.make_jaxpr(function)(H).jaxpr) for function, _ in FUNCTIONS.values()]
    assert set().union(*found) >= SERVED - LEFT_OUT
