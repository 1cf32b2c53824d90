"""Processor seconds of the first step of a 13-50-1 network in Pyro, alone in its process.

    python benchmarks/net_speed_first_step.py compiled=True | TraceMeanField_ELBO

Those of the compilers that it starts are included; importing is not.
"""

from __future__ import annotations

import json
import sys

import pyro
import torch
from pyro.infer import TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from step_time_pyro import Regression
from timing import processor_seconds

from pyro_moments import DeterministicELBO, DVIGuide


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pyro.settings.set(module_local_params=True)
    data, model = (torch.randn(64, 13), torch.randn(64)), Regression(13, 50, 1)
    start = processor_seconds()
    if sys.argv[1] == "compiled=True":
        DeterministicELBO(compiled=True).loss_and_grads(model, DVIGuide(model), *data)
    else:
        TraceMeanField_ELBO().loss_and_grads(model, AutoNormal(model), *data)
    print(json.dumps(processor_seconds() - start))


if __name__ == "__main__":
    main()
