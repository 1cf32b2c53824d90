"""Steps of networks in Pyro."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import peak_memory
import pyro
import torch
import torch.nn.functional as F
from net_speed_rows import Measured, Row, compared, timed
from pyro.infer import SVI, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.elbo import ELBO
from pyro.optim import Adam
from step_time_pyro import elbo_step
from timing import COMPILED, Step
from torch import Tensor

from pyro_moments import DeterministicELBO, DVIGuide

NAME, BY = "Pyro", "minimum"
REFERENCE, FULL, DIAGONAL = "TraceMeanField_ELBO + AutoNormal", "full", "diagonal"
LIMITS = {FULL: 0.8, DIAGONAL: 0.8, FULL + COMPILED: 0.11, DIAGONAL + COMPILED: 0.11}
FIRST_STEP = 15.0  # seconds
START = 0.05
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "elu": F.elu,
    "silu": F.silu,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": F.leaky_relu,
}

torch.set_num_threads(1)
pyro.settings.set(module_local_params=True)  # of each guide


class Network(peak_memory.Heteroscedastic):
    """Heteroscedastic regression with one activation or another."""

    def __init__(self, *sizes: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__(*sizes)
        self.activation = activation

    def outputs(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for module in hidden:
            x = self.activation(module(x))
        return last(x)


def updates(options: argparse.Namespace) -> Iterator[Row]:
    """Loss with gradients, which the limits are of, updates with Pyro's Adam, and first steps."""
    repeats = 10 * options.repeats
    what = "13-50-2, batch 64, loss and gradients"
    yield from compared(what, BY, timed(_steps(_gradients, options), repeats), LIMITS)
    what = "13-50-2, batch 64, update with Pyro's Adam"
    yield from compared(what, BY, timed(_steps(_update, options), repeats), {})
    if not options.no_compiled:
        host, ours = map(_first_step, ("TraceMeanField_ELBO", "compiled=True"))
        yield Row("13-50-1, batch 64, first step", ours, BY, host, FIRST_STEP, in_seconds=True)


def _steps(make: Callable, options: argparse.Namespace) -> dict[str, Step]:
    torch.manual_seed(0)
    data, model = (torch.randn(64, 13), torch.randn(64)), _network(13, 50, 2)
    steps = {REFERENCE: make(TraceMeanField_ELBO(), model, AutoNormal, data)}
    for suffix in ("",) if options.no_compiled else ("", COMPILED):
        for covariance in (FULL, DIAGONAL):
            elbo = DeterministicELBO(covariance=covariance, compiled=bool(suffix))
            steps[covariance + suffix] = make(elbo, model, DVIGuide, data)
    return steps


def _network(*sizes: int, activation: str = "relu") -> Network:
    return Network(*sizes, activation=ACTIVATIONS[activation])


def _gradients(elbo: ELBO, model: Network, guide: Callable, data: tuple) -> Step:
    return elbo_step(elbo, model, guide(model, init_scale=START), data)


def _update(elbo: ELBO, model: Network, guide: Callable, data: tuple) -> Step:
    svi = SVI(model, guide(model, init_scale=START), Adam({"lr": 1e-3}), elbo)
    return partial(svi.step, *data)


def layer_step(sizes: tuple[int, ...], rows: int, activation: str = "relu") -> Step:
    """One ELBO of full covariance with its gradients."""
    torch.manual_seed(0)
    data = torch.randn(rows, 13), torch.randn(rows)
    model = _network(*sizes, activation=activation)
    guide = DVIGuide(model, init_loc_fn=_by_fan_in, init_scale=START)
    return elbo_step(DeterministicELBO(covariance="full"), model, guide, data)


def _by_fan_in(site: dict) -> Tensor:
    """Weights N(0, 1/fan-in), biases 0."""
    shape = site["fn"].event_shape
    return torch.randn(shape) * shape[-1] ** -0.5 if len(shape) > 1 else torch.zeros(shape)


def peak(step: Step) -> float:
    """Mebibytes that a step needs at most."""
    return peak_memory.peak(step) / 2**20


def _first_step(contender: str) -> Measured:
    """Processor seconds in a fresh process, with an inductor that has compiled nothing before."""
    script = Path(__file__).with_name("net_speed_first_step.py")
    with tempfile.TemporaryDirectory() as cache:
        own = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        command = [sys.executable, str(script), contender]
        done = subprocess.run(command, env=os.environ | own, check=True, stdout=subprocess.PIPE)
    seconds = json.loads(done.stdout.splitlines()[-1])
    return Measured(contender, seconds, seconds)
