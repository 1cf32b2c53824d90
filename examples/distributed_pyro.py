"""Train on several processes: torchrun --nproc-per-node 2 examples/distributed_pyro.py (STEPS)."""

import sys

import pyro
import pyro.distributions as dist
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from pyro_moments import DeterministicELBO, DVIGuide

X = torch.linspace(-1, 1, 60)
Y = torch.sin(3 * X)


def model(x, y=None):
    weights = pyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("data", len(X), subsample=x):  # scales the rows of one process to all
        mean = weights[0] + weights[1] * x + weights[2] * x**3
        pyro.sample("y", dist.Normal(mean, 0.1), obs=y)


def train(steps, rank, count):
    pyro.set_rng_seed(0)  # every process begins with the same parameters
    x, y = X[rank::count], Y[rank::count]
    loss = DeterministicELBO()(model, DVIGuide())
    loss(x, y)  # makes the parameters
    parallel = DistributedDataParallel(loss) if count > 1 else loss
    optimiser = torch.optim.Adam(loss.parameters(), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        parallel(x, y).backward()
        optimiser.step()
    return torch.cat([part.detach().flatten() for part in loss.parameters()])


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    rank, count = distributed.get_rank(), distributed.get_world_size()
    print(train(int(*sys.argv[1:] or [200]), rank, count).tolist())
    distributed.barrier()  # no process leaves while another still prints
    distributed.destroy_process_group()
