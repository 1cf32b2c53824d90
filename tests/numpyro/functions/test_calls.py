"""Calls of JAX are seen through; what hides its program is refused."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from numpyro_moments import Moments, UnsupportedMoments, propagate

X = Moments(np.asarray([0.3, -1.0, 2.0]), variance=np.asarray([0.5, 0.1, 1.0]))


pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


@jax.custom_jvp
def doubled(x):
    return 2 * x + 1


doubled.defjvp(lambda primals, tangents: (doubled(primals[0]), 100 * tangents[0]))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def applied(function, x, scale):
    return function(x) * scale


applied.defvjp(lambda f, x, s: (f(x) * s, None), lambda f, _, g: (g, g))
mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
SHARDING = NamedSharding(mesh, PartitionSpec("data"))

SAME = {
    "jit": (jax.jit(jnp.sin), jnp.sin),
    "inlined jit": (jax.jit(jnp.sin, inline=True), jnp.sin),
    "checkpoint": (jax.checkpoint(jnp.sin), jnp.sin),
    "custom_jvp": (doubled, lambda x: 2 * x + 1),
    "custom_vjp with a function": (lambda x: applied(jnp.sin, x, 2.0), lambda x: 2 * jnp.sin(x)),
    "optimization_barrier": (lambda x: jax.lax.optimization_barrier(x) * 2, lambda x: x * 2),
    "checkpoint_name": (lambda x: checkpoint_name(x, "h") * 2, lambda x: x * 2),
    "sharding": (lambda x: jax.lax.with_sharding_constraint(x, SHARDING) * 2, lambda x: x * 2),
    "vmap": (jax.vmap(lambda v: jnp.sin(v)), jnp.sin),
    "grad": (jax.vmap(jax.grad(jnp.sin)), jnp.cos),
}


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(("called", "plain"), SAME.values(), ids=SAME)
def test_call_has_the_moments_of_what_it_calls(called, plain, covariance):
    found, expected = (propagate(f, X, covariance=covariance) for f in (called, plain))
    for part in ("mean", "variance", *["covariance"] * (covariance == "full")):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-12)


def test_derivative_of_the_moments_is_that_of_the_moments():
    """A custom derivative is one of the function, and says nothing of its moments."""
    total = lambda m: jnp.sum(propagate(doubled, Moments(m, variance=X.variance)).mean)  # noqa: E731
    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(X.mean)), 2.0)


def test_sharded_moments_stay_where_they_are_put():
    place = jax.jit(
        lambda m, v: (
            propagate(
                lambda x: jax.lax.with_sharding_constraint(x, SHARDING), Moments(m, variance=v)
            ).variance
        )
    )
    assert place(X.mean, X.variance).sharding.is_equivalent_to(SHARDING, 1)


def test_print_of_a_random_value_is_left_out_with_a_warning(capfd):
    def printing(x):
        jax.debug.print("h = {}", x)
        jax.debug.print("shape = {}", jnp.ones(()) * x.shape[0])
        return 2 * x

    with pytest.warns(UserWarning, match="left out") as caught:
        found = propagate(printing, X)
    jax.effects_barrier()
    assert [warning.filename for warning in caught] == [__file__]
    np.testing.assert_allclose(found.variance, 4 * X.variance)
    printed = capfd.readouterr().out
    assert "shape = 3" in printed
    assert "h =" not in printed


SHAPE = jax.ShapeDtypeStruct((3,), np.float64)
REFUSED = {
    "pure_callback": (lambda x: jax.pure_callback(np.sin, SHAPE, x), "Python function.*random"),
    "io_callback": (lambda x: io_callback(np.sin, SHAPE, x), "Python function.*random"),
    "shard_map": (
        jax.shard_map(
            jnp.sin, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec("data")
        ),
        "shard_map",
    ),
}


@pytest.mark.parametrize(("program", "cause"), REFUSED.values(), ids=REFUSED)
def test_hidden_programs_are_refused(program, cause):
    with pytest.raises(UnsupportedMoments, match=cause) as raised:
        propagate(program, X)
    assert raised.value.remedy
    assert raised.value.sites == ("input 0",)


def test_callback_on_certain_values_runs():
    certain = lambda x: x * jax.pure_callback(np.sin, SHAPE, jnp.ones(3))  # noqa: E731
    np.testing.assert_allclose(propagate(certain, X).mean, X.mean * np.sin(1.0))
