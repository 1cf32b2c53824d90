"""Train on several processes, each started by ADDRESS NUMBER COUNT (STEPS): localhost:1234 0 2."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from numpyro_moments import SVI, DeterministicELBO, DVIGuide

X = np.linspace(-1, 1, 60, dtype=np.float32)
Y = np.sin(3 * X)


def model(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("data", len(x)):  # JAX sees the rows of all processes
        mean = weights[0] + weights[1] * x + weights[2] * x**3
        numpyro.sample("y", dist.Normal(mean, 0.1), obs=y)


def train(steps):
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))
    x, y = (jax.make_array_from_callback(part.shape, rows, part.__getitem__) for part in (X, Y))
    svi = SVI(model, DVIGuide(), DeterministicELBO(), numpyro.optim.Adam(0.05))
    state = svi.init(jax.random.key(0), jnp.asarray(X), jnp.asarray(Y))
    update = jax.jit(svi.update)
    for _ in range(steps):
        state, _ = update(state, x, y)
    return svi.get_params(state)


if __name__ == "__main__":
    address, number, count, *steps = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, int(count), int(number))
    print([part.tolist() for part in train(int(*steps or [200])).values()])
