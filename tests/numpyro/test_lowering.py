"""Training steps lower for CUDA, where none of them ever ran: no operation is the CPU's alone."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy

import numpyro_moments as package
from numpyro_moments.evaluation import programs
from tests.checks import small_programs

X, Y = jnp.linspace(-1.0, 1.0, 12).reshape(6, 2), jnp.linspace(-1.0, 1.0, 6)
ACTIVATIONS = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
}


def network(activation):
    def layer(name, x, outputs):
        prior = dist.Normal(0.0, 1.0).expand([x.shape[-1], outputs]).to_event(2)
        return x @ numpyro.sample(name, prior)

    def model(x, y=None):
        out = layer("last", activation(layer("first", x, 3)), 2)
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(out[..., 0], jnp.exp(out[..., 1])), obs=y)

    return model


def counts(x, y=None):
    weight = numpyro.sample("weight", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ weight), shape), obs=y)


def effects(x, y=None):
    scales = numpyro.sample("scales", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 1.5))
    with numpyro.plate("groups", 3):
        prior = dist.MultivariateNormal(jnp.zeros(2), scale_tril=scales[:, None] * factor)
        both = numpyro.sample("both", prior)
    with numpyro.plate("data", len(x)):
        mean = both[jnp.arange(6) % 3, 0] + both[jnp.arange(6) % 3, 1] * x[:, 0]
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


ELBO = package.DeterministicELBO
STEPS = {
    **{name: (network(f), package.DVIGuide, ELBO()) for name, f in ACTIVATIONS.items()},
    "diagonal": (network(jax.nn.relu), package.DVIGuide, ELBO(covariance="diagonal")),
    "chain": (network(jax.nn.relu), package.TridiagonalGuide, ELBO()),
    "dropout": (network(jax.nn.relu), package.MCDropoutGuide, ELBO()),
    "sampled": (network(jax.nn.relu), package.DVIGuide, ELBO(propagation="sampled")),
    "energy": (network(jax.nn.relu), package.DVIGuide, package.BBAlphaELBO(alpha=0.5)),
    "Rényi": (network(jax.nn.relu), package.DVIGuide, package.RenyiELBO(alpha=0.5)),
    "counts": (counts, package.DVIGuide, ELBO()),
    "effects": (effects, package.DVIGuide, ELBO()),
}


def lowered(step, *arguments):
    """The program of a step for CUDA, compiled by no machine here."""
    return jax.jit(step).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("name", STEPS)
def test_a_step_lowers_for_cuda(name):
    model, guide, objective = STEPS[name]
    y = jnp.arange(6.0).round() if name == "counts" else Y
    svi = package.SVI(model, guide(), objective)
    with small_programs.by_numpy():
        state = svi.init(jax.random.key(0), X, y)
    text = lowered(lambda state: svi.update(state, X, y)[0], state)
    assert "stablehlo" in text


def test_a_callback_of_the_cpu_is_refused():
    result = jax.ShapeDtypeStruct((), jnp.float32)
    with pytest.raises(Exception, match="different from the lowering platform cuda"):
        lowered(lambda x: jax.pure_callback(lambda x: x, result, x), jnp.float32(1.0))


def test_programs_of_many_small_operations_are_compiled_with_fewer_optimisations(monkeypatch):
    """Those of few or large ones run 2 to 6 times as long without, each step of a training too."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")

    def options(size, rounds=10, operations=programs.MANY, loop=jax.lax.fori_loop, **runs):
        def body(_, x):
            for _ in range(operations):
                x = -x
            return x

        program = lambda x: loop(0, rounds, body, x)  # noqa: E731
        return programs._options_for(jax.make_jaxpr(program)(jnp.zeros(size)).jaxpr, **runs)

    def unknown(start, rounds, body, x):  # as of a training, whose steps are counted as it runs
        return jax.lax.fori_loop(start, jnp.sum(x).astype(int), body, x)

    assert options(10) is programs.QUICK
    assert options(10, operations=10) is None
    assert options(10_000) is None
    assert options(10_000, runs=10) is programs.QUICK
    assert options(10, rounds=1000) is None
    assert options(100, loop=unknown) is None


@pytest.mark.usefixtures("double_precision_in_jax")
def test_slopes_are_right_with_fewer_optimisations():
    """Without XLA's fusion emitters, those of a Beta-binomial likelihood are off by 6 %."""
    x, y = np.random.default_rng(0).normal(size=13), np.arange(13.0)
    noise = 0.02 * np.random.default_rng(1).normal(size=(256, 3))[:2]
    z, small = np.array([0.1, 0.4, 0.2]), 1e-5 * np.eye(3)

    def terms(z, betaln=scipy.special.betaln, exp=np.exp):
        z = z + noise
        mean, size = 1 / (1 + exp(-z[:, :1] - z[:, 1:2] * x)), exp(z[:, 2:])
        return betaln(mean * size + y, (1 - mean) * size + 20.0 - y).mean(0).sum()

    slope = jax.grad(lambda z: terms(z, jax.scipy.special.betaln, jnp.exp))
    found = jax.jit(slope, compiler_options=programs.QUICK)(z)
    rises = [(terms(z + step) - terms(z - step)) / 2e-5 for step in small]
    assert np.asarray(found) == pytest.approx(rises, rel=1e-6)
