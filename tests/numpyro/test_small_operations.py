"""Small operations by NumPy give what JAX gives: numbers, shapes, types, and random keys."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax

from numpyro_moments import SVI, GaussianGuide
from numpyro_moments.evaluation import small_operations
from numpyro_moments.evaluation.small_operations import small_operations_by_numpy

X = np.array([[0.3, -1.2, 2.0], [0.0, 0.7, -0.4]])
FUNCTIONS = {
    "arithmetic": lambda x: (x + 2) * x - x / (3 + x**2) + x**-2 + x**1.5 + x % 0.7 - abs(-x),
    "transcendental": lambda x: (
        jnp.exp(x) + jnp.expm1(x) + jnp.log(2 + x) + jnp.log1p(x * x) + jnp.sqrt(2 + x)
    ),
    "hyperbolic": lambda x: jnp.tanh(x) + jnp.cosh(x) + jnp.sinh(x) + jnp.arctanh(x / 3),
    "logistic": lambda x: jax.nn.sigmoid(x) + jax.scipy.special.erf(x) + jax.nn.softplus(x),
    "comparisons": lambda x: jnp.where((x > 0) & ~(x >= 1) | (x == 2), x, jnp.sign(x)),
    "missing": lambda x: jnp.where(jnp.isfinite(1 / x), jnp.log(x), jnp.nan),
    "rounded": lambda x: jnp.floor(x) + jnp.ceil(x) + jnp.clip(x, -0.5, 0.5),
    "shapes": lambda x: jnp.concatenate([x.T.reshape(2, 3), x[::-1], x[:, 1:2] + 0 * x]),
    "sums": lambda x: x.sum(0) + x.max(0) + x.min(0) + jnp.prod(x, 0) + (x.any() & x.all()),
    "running": lambda x: jnp.cumsum(x, 1) + jnp.cumprod(x, 0) + lax.cumsum(x, 1, reverse=True),
    "products": lambda x: x @ x.T + jnp.einsum("ij,kj->ik", x, 2 * x),
    "batches of products": lambda x: jnp.stack([x, -x]) @ jnp.stack([x.T, x.T]),
    "counts": lambda x: jnp.arange(3) * x.astype(int) + jnp.split(x, 3, axis=1)[1].astype(int),
    "of whole numbers": lambda x: (7 * x).astype(int) // 3 + (7 * x).astype(int) % 3,
    "weak": lambda x: jnp.broadcast_to(jnp.asarray(2.0), (3,)) * jnp.asarray(1.5),
    "left to JAX": lambda x: jnp.sort(x)[0, jnp.array([2, 0])] + jnp.linalg.norm(x),
}


def typed(value):
    return jax.typeof(value), np.asarray(value)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_and_types_are_those_of_jax(name, dtype):
    with jax.enable_x64(dtype == np.float64):
        x = jnp.asarray(X, dtype)
        expected_type, expected = typed(FUNCTIONS[name](x))
        with small_operations_by_numpy():
            found_type, found = typed(FUNCTIONS[name](x))
        assert found_type == expected_type
        np.testing.assert_allclose(
            found, expected, rtol=4 * np.finfo(dtype).eps, atol=16 * np.finfo(dtype).eps
        )


@pytest.mark.parametrize("seed", [0, 7, -3, 2**31 + 5])
@pytest.mark.parametrize("double", [False, True])
def test_keys_are_those_of_jax(seed, double):
    def numbers():
        key = jax.random.key(seed)
        keys = *jax.random.split(key, 3), jax.random.fold_in(key, 5)
        raw = jax.random.split(jax.random.PRNGKey(seed), (2, 2))
        return [*map(jax.random.key_data, keys), raw], jax.random.normal(keys[1], (3,))

    with jax.enable_x64(double):
        seed = seed if double else seed % 2**31
        expected, drawn = numbers()
        with small_operations_by_numpy():
            found, draws = numbers()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    # XLA's last digit depends on what it fuses
    np.testing.assert_allclose(draws, drawn, rtol=4 * np.finfo(drawn.dtype).eps)


def test_operations_inside_a_program_and_of_large_arrays_are_those_of_jax():
    with small_operations_by_numpy():
        program = jax.make_jaxpr(lambda x: jnp.exp(x) + x)(1.0)
        vectors = jax.vmap(jax.grad(lambda x: jnp.exp(2 * x)))(jnp.zeros(3))
        compiled = jax.jit(jnp.exp)(jnp.ones(small_operations.LARGEST + 1))
    assert [equation.primitive.name for equation in program.eqns] == ["exp", "add"]
    np.testing.assert_array_equal(vectors, np.full(3, 2.0))
    np.testing.assert_allclose(compiled, np.exp(1.0), rtol=1e-6)

    def traced(x):
        with small_operations_by_numpy():
            return jnp.exp(x)

    assert jax.make_jaxpr(traced)(1.0).eqns[0].primitive.name == "exp"


def test_a_guide_starts_with_few_compilations():
    def model(errors, y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        spread = numpyro.sample("spread", dist.HalfNormal(2.0))
        with numpyro.plate("rows", 7):
            effect = numpyro.sample("effect", dist.Normal(mean, spread))
            numpyro.sample("obs", dist.Normal(effect, errors), obs=y)

    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **named: (
            compiled.append(named.get("fun_name"))
            if event == "/jax/core/compile/backend_compile_duration"
            else None
        )
    )
    data = jnp.full(7, 0.3), jnp.linspace(-1, 1, 7)
    jax.clear_caches()
    compiled.clear()
    with small_operations_by_numpy():
        SVI(model, GaussianGuide()).init(jax.random.key(0), *data)
    assert len(compiled) <= 5, compiled
