"""The models of the comparison with NUTS in NumPyro."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from numpyro_moments import Comparison, DVIGuide, compare_with_nuts, fit

HIDDEN = 20


def regression(x: Any, y: Any = None) -> None:
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(x @ weights + bias, scale), obs=y)


def hierarchy(x: Any, group: Any, y: Any = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("group", 20):
        intercept = numpyro.sample("intercept", dist.Normal(mean, spread))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(intercept[group] + slope * x, scale), obs=y)


def schools(errors: Any, y: Any = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfCauchy(5))
    with numpyro.plate("school", len(errors)):
        effect = numpyro.sample("standard_effect", dist.Normal(0, 1))
        numpyro.sample("obs", dist.Normal(mean + spread * effect, errors), obs=y)


def network(x: Any, y: Any = None) -> None:
    def layer(name: str, x: Any, outputs: int) -> Any:
        prior = dist.Normal(0.0, 1.0)
        weight = numpyro.sample(f"{name}.weight", prior.expand([x.shape[-1], outputs]).to_event(2))
        return x @ weight + numpyro.sample(f"{name}.bias", prior.expand([outputs]).to_event(1))

    out = layer("last", jax.nn.relu(layer("first", x, HIDDEN)), 1)[..., 0]
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(out, scale), obs=y)


MODELS = {
    "regression": regression,
    "hierarchy": hierarchy,
    "schools": schools,
    "network": network,
}


def compared(case: Any, draws: int, reference: Any = None) -> Comparison:
    model = MODELS[case.model]
    with jax.enable_x64(True):
        data = tuple(map(jnp.asarray, case.data))
        test = None if case.test is None else tuple(map(jnp.asarray, case.test))
        result = fitted(model, data, case)
        options = {"test": test, "reference": reference, "num_samples": draws}
        return compare_with_nuts(model, result, *data, **options)


def fitted(model: Any, data: tuple, case: Any) -> Any:
    """By Newton's method; networks begin by L-BFGS."""
    if not case.is_network:
        return fit(model, DVIGuide(), *data, method="newton", float64=True)
    begun = fit(model, DVIGuide(), *data, method="lbfgs", float64=True)
    options = {"params": begun.params, "float64": True, "steps": 600}
    found = fit(model, begun.guide, *data, method="newton", **options)
    found.seconds["lbfgs"] = sum(begun.seconds.values())
    return found
