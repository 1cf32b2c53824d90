"""Files of the library that a call passes: ``python -m tests.project.passed pyro|numpyro``.

One step of SVI on a 1-50-2 network (in NumPyro its tracing), and ``compare_with_nuts``.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from tests.cases.hosts import models
from tests.project.counts import SOURCE

Calls = dict[str, Callable[[], Any]]


def passed(call: Callable[[], Any]) -> list[str]:
    """The files of the four packages that have a frame while a call runs."""
    seen = set()
    sys.setprofile(lambda frame, event, argument: seen.add(_file(frame)))
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(seen - {""})


def _file(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    starts = (path.rfind(f"/{name}/") for name in SOURCE)
    return path[max(starts) + 1 :] if any(f"/{name}/" in path for name in SOURCE) else ""


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
    print(json.dumps({name: passed(call) for name, call in calls.items()}))
