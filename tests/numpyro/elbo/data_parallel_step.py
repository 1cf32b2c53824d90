"""One jitted step on a mesh of four devices against one device; prints the largest differences.

Run with XLA_FLAGS=--xla_force_host_platform_device_count=4.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from numpyro_moments import SVI, DeterministicELBO, DVIGuide

BATCH, INPUTS, HIDDEN = 32, 3, 8


def model(x, y=None):
    """A hidden layer; location and log variance sliced from one output."""
    h = x
    for layer, outputs in enumerate((HIDDEN, 2)):
        shape = (h.shape[-1], outputs)
        weight = numpyro.sample(f"weight{layer}", dist.Normal(0, 1).expand(shape).to_event(2))
        bias = numpyro.sample(f"bias{layer}", dist.Normal(0, 1).expand([outputs]).to_event(1))
        h = (jax.nn.relu(h) if layer else h) @ weight + bias
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(h[:, 0], jnp.exp(0.5 * h[:, 1])), obs=y)


def relative_difference(one, other) -> float:
    differences = jax.tree.map(
        lambda a, b: np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(a).max(), one, other
    )
    return float(max(jax.tree.leaves(differences)))


def main() -> None:
    assert jax.device_count() == 4, jax.devices()
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, INPUTS)).astype(np.float32)
    y = np.sin(x[:, 0])
    sgd = numpyro.optim.SGD(1.0)  # moves the parameters by their gradients
    svi = SVI(model, DVIGuide(init_scale=0.2), DeterministicELBO(), optim=sgd)
    state = jax.jit(lambda key: svi.init(key, x, y))(jax.random.key(0))

    @jax.jit
    def step(state, x, y):
        state, loss = svi.update(state, x, y)
        return loss, svi.get_params(state)

    alone = step(state, x, y)
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    rows = NamedSharding(mesh, PartitionSpec("batch"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    sharded = step(jax.device_put(state, everywhere), *(jax.device_put(a, rows) for a in (x, y)))
    names = ("loss", "parameters")
    print(
        json.dumps(
            {n: relative_difference(a, b) for n, a, b in zip(names, alone, sharded, strict=True)}
        )
    )


if __name__ == "__main__":
    main()
