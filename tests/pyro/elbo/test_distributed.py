"""Data-parallel training: two processes on halves of a batch equal one on the whole."""

import pyro
import pytest
import torch

from tests.pyro import models
from tests.pyro.elbo import distributed_step

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="torch was built without gloo",
)


@pytest.fixture
def local_parameters():
    before = pyro.settings.get("module_local_params")
    yield
    pyro.settings.set(module_local_params=before)


@pytest.mark.usefixtures("local_parameters")
def test_two_processes_equal_one(tmp_path):
    x, y = models.data()
    path = str(tmp_path / "result.pt")
    arguments = (2, str(tmp_path / "meeting"), x, y, path)  # a file: no port can be taken
    other = torch.multiprocessing.spawn(distributed_step.run, arguments, join=False, daemon=True)
    distributed_step.run(1, *arguments)  # this process is the second
    while not other.join():
        pass
    parallel, single = torch.load(path), distributed_step.train(x, y, 0, 1)
    assert parallel.keys() == single.keys()
    assert sum(name.startswith("grad") for name in single) == 8
    for name, expected in single.items():
        assert torch.allclose(parallel[name], expected, rtol=1e-6, atol=1e-6), name
    assert not torch.equal(single["grad locs.network.0.bias_unconstrained"], torch.zeros(8))
