"""The models of the comparison with NUTS in Pyro."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch

from pyro_moments import Comparison, DVIGuide, Fit, compare_with_nuts, fit


def regression(x: Any, y: Any = None) -> None:
    weights = pyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(x @ weights + bias, scale), obs=y)


def hierarchy(x: Any, group: Any, y: Any = None) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("group", 20):
        intercept = pyro.sample("intercept", dist.Normal(mean, spread))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(intercept[group] + slope * x, scale), obs=y)


def schools(errors: Any, y: Any = None) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = pyro.sample("spread", dist.HalfCauchy(5.0))
    with pyro.plate("school", len(errors)):
        effect = pyro.sample("standard_effect", dist.Normal(0.0, 1.0))
        pyro.sample("obs", dist.Normal(mean + spread * effect, errors), obs=y)


def network(x: Any, y: Any = None) -> None:
    out = layer("last", torch.relu(layer("first", x, 20)), 1)[..., 0]
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(out, scale), obs=y)


def layer(name: str, x: Any, outputs: int) -> Any:
    prior, shape = dist.Normal(0.0, 1.0), [x.shape[-1], outputs]
    weight = pyro.sample(f"{name}.weight", prior.expand(shape).to_event(2))
    return x @ weight + pyro.sample(f"{name}.bias", prior.expand([outputs]).to_event(1))


MODELS = {
    "regression": regression,
    "hierarchy": hierarchy,
    "schools": schools,
    "network": network,
}


def compared(case: Any, draws: int, reference: Any = None) -> Comparison:
    torch.set_num_threads(1)
    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    model, data = MODELS[case.model], tuple(map(torch.as_tensor, case.data))
    test = None if case.test is None else tuple(map(torch.as_tensor, case.test))
    options = {"test": test, "reference": reference, "num_samples": draws, "num_warmup": draws}
    return compare_with_nuts(model, fitted(model, data, case), *data, **options)


def fitted(model: Any, data: tuple, case: Any) -> Fit:
    """By Newton's method; networks begin by L-BFGS."""
    if not case.is_network:
        return fit(model, DVIGuide(), *data, method="newton", float64=True)
    begun = fit(model, DVIGuide(), *data, method="lbfgs", float64=True)
    found = fit(model, begun.guide, *data, method="newton", float64=True, steps=600)
    found.seconds["lbfgs"] = sum(begun.seconds.values())
    return found
