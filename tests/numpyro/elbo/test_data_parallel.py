"""One jitted step on a mesh of four devices equals that on one device.

The test runs this file in a process of its own, where XLA has four devices.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import numpyro
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from numpyro_moments import SVI, DeterministicELBO, DVIGuide
from tests.numpyro import models

ROOT = Path(__file__).resolve().parents[3]


def test_four_devices_equal_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    result = subprocess.run(
        [sys.executable, "-m", "tests.numpyro.elbo.test_data_parallel"],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def main() -> None:
    assert jax.device_count() == 4, jax.devices()
    x, y = (array.astype(float) for array in models.data())
    sgd = numpyro.optim.SGD(1.0)  # moves the parameters by their gradients
    svi = SVI(models.network, DVIGuide(init_scale=0.2), DeterministicELBO(), optim=sgd)
    state = jax.jit(lambda key: svi.init(key, x, y))(jax.random.key(0))

    @jax.jit
    def step(state, x, y):
        state, loss = svi.update(state, x, y)
        return loss, svi.get_params(state)

    mesh = Mesh(np.array(jax.devices()), ("batch",))
    rows = NamedSharding(mesh, PartitionSpec("batch"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    alone = step(state, x, y)
    sharded = step(jax.device_put(state, everywhere), *(jax.device_put(a, rows) for a in (x, y)))
    for one, other in zip(*map(jax.tree.leaves, (alone, sharded)), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(one).max())


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
