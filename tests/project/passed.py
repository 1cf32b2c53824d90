"""Files of the library that a call passes: ``python -m tests.project.passed pyro|numpyro``.

One step of SVI on a 1-50-2 network (in NumPyro its tracing), and ``compare_with_nuts``.
"""

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any

import numpy as np

from tests.cases.hosts import models
from tests.project.counts import PACKAGES, SOURCE

Calls = dict[str, Callable[[], Any]]


def passed(call: Callable[[], Any]) -> list[str]:
    """The files of our packages that have a frame while a call runs."""
    seen = set()
    sys.setprofile(lambda frame, event, argument: seen.add(_file(frame)))
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(seen - {""})


def _file(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    start = max(path.rfind(f"/{name}/") for name in (*SOURCE, *PACKAGES.values()))
    return path[start + 1 :] if start >= 0 else ""


def calls_and_hops(call: Callable[[], Any]) -> dict[str, int]:
    """How many calls of our functions a call makes, and how many lead from one room to another."""
    rooms: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (file := _file(frame)):
            rooms.append("/".join(file.split("/")[:2]))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {"calls": len(rooms), "hops": sum(a != b for a, b in pairwise(rooms))}


def network(host: Any, x: Any, y: Any = None) -> None:
    """Heteroscedastic regression by fifty relus."""
    h = host.relu(x @ models.weights(host, "w1", 1, 50) + models.weights(host, "b1", 50))
    h = h @ models.weights(host, "w2", 50, 2) + models.weights(host, "b2", 2)
    with host.plate("n", len(x)):
        host.sample("obs", host.dist.Normal(h[..., 0], host.np.exp(h[..., 1])), obs=y)


def line(host: Any, x: Any, y: Any = None) -> None:
    """A regression whose noise is unknown."""
    slope = host.sample("slope", host.dist.Normal(0.0, 1.0))
    scale = host.sample("scale", host.dist.LogNormal(0.0, 1.0))
    with host.plate("n", len(x)):
        host.sample("obs", host.dist.Normal(slope * x[:, 0], scale), obs=y)


def calls_of_pyro() -> Calls:
    """Both calls, ready to run."""
    import pyro
    import torch

    import pyro_moments

    host, data = models.PYRO, (torch.randn(20, 1), torch.randn(20))
    elbo, adam = pyro_moments.DeterministicELBO(), pyro.optim.Adam({"lr": 0.01})
    svi = pyro_moments.SVI(partial(network, host), pyro_moments.DVIGuide(), adam, elbo)
    svi.step(*data)  # makes the parameters
    return {
        "step": partial(svi.step, *data),
        "compare_with_nuts": _compared(pyro_moments, host, data),
    }


def calls_of_numpyro() -> Calls:
    """Both calls, ready to run."""
    import jax
    import numpyro

    import numpyro_moments

    host, data = models.NUMPYRO, (jax.random.normal(jax.random.key(0), (20, 1)), np.ones(20))
    elbo, adam = numpyro_moments.DeterministicELBO(), numpyro.optim.Adam(0.01)
    svi = numpyro_moments.SVI(partial(network, host), numpyro_moments.DVIGuide(), adam, elbo)
    state = svi.init(jax.random.key(0), *data)
    compared = _compared(numpyro_moments, host, data)
    return {"step": partial(svi.update, state, *data), "compare_with_nuts": compared}


def _compared(package: Any, host: Any, data: tuple) -> Callable[[], Any]:
    model = partial(line, host)
    fit = package.fit(model, package.DVIGuide(), *data, method="newton", progress_bar=False)
    return partial(package.compare_with_nuts, model, fit, *data, num_samples=20, num_warmup=20)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    calls = {"pyro": calls_of_pyro, "numpyro": calls_of_numpyro}[sys.argv[1]]()
    files = {name: passed(call) for name, call in calls.items()}
    # A tracing is over after the first call, so that the step of NumPyro is made anew.
    fresh = {"pyro": calls_of_pyro, "numpyro": calls_of_numpyro}[sys.argv[1]]()
    print(json.dumps(files | calls_and_hops(fresh["step"])))
