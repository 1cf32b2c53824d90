"""One process of a data-parallel group: three steps on its share of the data."""

from datetime import timedelta

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from pyro_moments import DeterministicELBO, DVIGuide
from tests.pyro import models

STEPS = 3


class DataParallelRegression(PyroModule):
    """A network whose plate knows the size of the whole batch, so that losses average."""

    def __init__(self, total: int) -> None:
        super().__init__()
        layers = nn.Sequential(nn.Linear(models.INPUTS, 8), nn.ReLU(), nn.Linear(8, 1))
        self.network, self.total = models.make_bayesian(layers), total

    def forward(self, x, y):
        mean = self.network(x).squeeze(-1)
        with pyro.plate("data", self.total, subsample=x):
            pyro.sample("obs", dist.Normal(mean, 0.3), obs=y)


def train(x: torch.Tensor, y: torch.Tensor, rank: int, size: int) -> dict[str, torch.Tensor]:
    """Loss and gradients of the first step, averaged over processes, and the parameters after."""
    torch.set_num_threads(1)
    pyro.settings.set(module_local_params=True)
    pyro.set_rng_seed(0)
    model, guide = DataParallelRegression(len(x)), DVIGuide()
    module = DeterministicELBO()(model, guide)
    module(x, y)  # makes the parameters
    share = slice(rank * len(x) // size, (rank + 1) * len(x) // size)
    parallel = DistributedDataParallel(module) if size > 1 else module
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
    first: dict[str, torch.Tensor] = {}
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = parallel(x[share], y[share])
        loss.backward()
        first = first or {"loss": _average(loss.detach(), size), **_gradients(guide)}
        optimiser.step()
    return {**first, **{name: p.detach().clone() for name, p in guide.named_parameters()}}


def _average(loss: torch.Tensor, size: int) -> torch.Tensor:
    if size > 1:
        distributed.all_reduce(loss)
    return loss / size


def _gradients(guide: nn.Module) -> dict[str, torch.Tensor]:
    return {f"grad {name}": p.grad.clone() for name, p in guide.named_parameters()}


def run(rank: int, size: int, meeting: str, x: torch.Tensor, y: torch.Tensor, path: str) -> None:
    """Entry point of a spawned process; the first one saves what it found."""
    options = {"init_method": f"file://{meeting}", "rank": rank, "world_size": size}
    distributed.init_process_group("gloo", timeout=timedelta(minutes=2), **options)
    result = train(x, y, rank, size)
    if rank == 0:
        torch.save(result, path)
    distributed.destroy_process_group()
