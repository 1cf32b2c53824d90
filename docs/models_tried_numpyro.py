"""NumPyro's own examples and a tutorial, and both ELBOs of what is trained on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from models_tried_sources import load
from models_tried_verdicts import SAMPLES, STEPS, Model, Sites
from numpyro.infer import Trace_ELBO

from numpyro_moments import SVI, DeterministicELBO, DVIGuide

NAME = "NumPyro"


def evaluate(model: Callable, guide: Callable | None, data: tuple[Any, ...], sites: Sites) -> None:
    """Evaluate the deterministic ELBO once."""
    elbo = DeterministicELBO(sample_sites=sites)
    SVI(model, guide or DVIGuide(), elbo).run(jax.random.key(0), 1, *data, progress_bar=False)


def elbos(
    model: Callable, guide: Callable | None, data: tuple[Any, ...], sites: Sites, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the deterministic ELBO after training, and of Trace_ELBO."""
    steps, samples = int(share * STEPS), int(share * SAMPLES)
    guide, elbo = guide or DVIGuide(), DeterministicELBO(sample_sites=sites)
    trained = SVI(model, guide, elbo).run(jax.random.key(0), steps, *data, progress_bar=False)

    def drawn(loss: Any, count: int, seed: int) -> np.ndarray:
        def one(key: jax.Array) -> jax.Array:
            return -loss.loss(key, trained.params, model, guide, *data)

        keys = jax.random.split(jax.random.key(seed), count)
        return np.asarray(jax.jit(partial(jax.lax.map, one))(keys), np.float64)

    return drawn(elbo, samples if sites else 1, 1), drawn(Trace_ELBO(), samples, 2)


def _of_the_source(file: str, function: str, *arguments: Any, **options: Any) -> Callable:
    """What the data function of the source returns."""

    def data(folder: Path) -> tuple:
        [made] = load(folder / file, [function])
        return tuple(made(*arguments, **options))

    return data


def _network(folder: Path) -> tuple:
    x, y, _ = _of_the_source("examples/bnn.py", "get_data", N=100)(folder)
    return x, y, 5


def _waves(_: Path) -> tuple:
    """As the script's ``main`` makes them."""
    t = jnp.arange(142)
    return (jnp.sin(t) + 0.1 * jax.random.normal(jax.random.key(0), (142,)),)


def _forest(_: Path) -> tuple:
    """54 normalised features and an intercept, and labels that are linear in them."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((5810, 54)), np.ones((5810, 1))], -1)
    logits = x @ (0.3 * rng.standard_normal(55))
    return jnp.asarray(x), jnp.asarray(rng.random(5810) < 1 / (1 + np.exp(-logits)))


def _patients(_: Path) -> tuple:
    """Forced vital capacity of 176 patients in 9 weeks each, in its standard deviations."""
    rng = np.random.default_rng(0)
    code = np.repeat(np.arange(176), 9)
    weeks = np.tile(np.arange(9) / 9, 176)
    level, slope = rng.normal(0, 1, 176), rng.normal(-0.3, 0.2, 176)
    return code, weeks, level[code] + slope[code] * weeks + rng.normal(0, 0.2, code.size)


def _smokers(folder: Path) -> tuple:
    code, weeks, capacity = _patients(folder)
    return code, weeks, np.random.default_rng(1).integers(0, 3, 176), capacity


def _horseshoe(definition: str, count: int, response: str) -> Model:
    file = "examples/horseshoe_regression.py"
    data = _of_the_source(file, "get_data", N=count, D_X=32, response=response)
    return Model(f"horseshoe regression, {definition}", file, definition, data)


def _hierarchy(definition: str, data: Callable) -> Model:
    file = "notebooks/source/bayesian_hierarchical_linear_regression.ipynb"
    made_of = "simulated and normalised: 176 patients, 9 weeks each"
    return Model(f"hierarchical linear regression, {definition}", file, definition, data, made_of)


MODELS = [
    Model("bnn", "examples/bnn.py", "model", _network),
    _horseshoe("model_normal_likelihood", 100, "continuous"),
    _horseshoe("model_bernoulli_likelihood", 400, "binary"),
    Model("ar2, ar2_scan", "examples/ar2.py", "ar2_scan", _waves),
    Model("ar2, ar2_for_loop", "examples/ar2.py", "ar2_for_loop", _waves),
    Model("funnel", "examples/funnel.py", "model", lambda _: ()),
    Model("funnel, reparam_model", "examples/funnel.py", "reparam_model", lambda _: ()),
    Model("covtype", "examples/covtype.py", "model", _forest, "simulated: 5810 rows, 55 columns"),
    Model(
        "proportion test",
        "examples/proportion_test.py",
        "model",
        _of_the_source("examples/proportion_test.py", "make_dataset", jax.random.key(3)),
    ),
    _hierarchy("model", _patients),
    _hierarchy("model_smoking_hierarchy", _smokers),
    _hierarchy("reparam_model_smoking_hierarchy", _smokers),
]
