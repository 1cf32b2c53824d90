"""Losses with their gradients, and predictions, of models × guides × objectives."""

import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.cases.hosts import models
from tests.cases.hosts.ordinary_models import CASES, DATA
from tests.golden.moments import in_double_precision
from tests.golden.recording import recorded

NETWORKS = {
    "regression": (models.regression, "x y"),
    "residual": (models.residual, "x y"),
    "heteroscedastic": (models.heteroscedastic, "x y"),
    "categorical": (models.categorical, "x classes"),
}
TARGETS = {"y", "classes", "binary", "counts", "times", "levels", "effects"}
GUIDES = {"DVIGuide": {}, "TridiagonalGuide": {}, "MCDropoutGuide": {"p": 0.2}}
OBJECTIVES = {
    "ELBO full": ("DeterministicELBO", {}),
    "ELBO backward": ("DeterministicELBO", {"covariance": "backward"}),
    "ELBO diagonal": ("DeterministicELBO", {"covariance": "diagonal"}),
    "BB-α full": ("BBAlphaELBO", {"alpha": 0.5}),
    "BB-α backward": ("BBAlphaELBO", {"alpha": 0.5, "covariance": "backward"}),
    "BB-α diagonal": ("BBAlphaELBO", {"alpha": 0.5, "covariance": "diagonal"}),
}
FURTHER = {
    "ELBO dvi": ("DeterministicELBO", {"rules": "dvi"}),
    "ELBO first order": ("DeterministicELBO", {"rules": "first_order"}),
    **{
        f"ELBO {rule}": ("DeterministicELBO", {"categorical": rule})
        for rule in ("pairs", "tilted", "jensen", "delta")
    },
}


def _value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An unconstrained parameter that depends on its name and shape alone."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return 0.3 * random.normal(size=shape) - ("scale" in name)


class Cell(NamedTuple):
    """A model with its data, a guide with its unconstrained parameters, and an objective."""

    model: Callable
    names: list[str]
    guide: str
    objective: tuple[str, dict[str, Any]]
    value: Callable[[str, tuple[int, ...]], np.ndarray] = _value
    data: dict[str, np.ndarray] = DATA
    predicted: bool = True


def entries(framework: str) -> dict[str, Any]:
    """All of them in a framework, in double precision."""
    in_double_precision(framework)
    evaluate = in_pyro if framework == "pyro" else in_numpyro
    return {name: recorded(lambda cell=cell: evaluate(cell)) for name, cell in cells()}


def cells() -> Iterator[tuple[str, Cell]]:
    for name, (model, arguments) in {**NETWORKS, **CASES}.items():
        guides = GUIDES if name in NETWORKS else ["DVIGuide"]
        for guide in guides:
            more = FURTHER if name in NETWORKS and guide == "DVIGuide" else {}
            for title, objective in {**OBJECTIVES, **more}.items():
                predicted = name in NETWORKS or title == "ELBO full"
                cell = Cell(model, arguments.split(), guide, objective, predicted=predicted)
                yield f"{name}, {guide}, {title}", cell


def _arguments(cell: Cell, array: Callable, observed: bool = True) -> list[Any]:
    return [
        array(cell.data[name]) if observed or name not in TARGETS else None for name in cell.names
    ]


def _predicted(predictions: Any) -> dict[str, Any]:
    return {
        f"{kind} of {site}": getattr(prediction, kind)
        for site, prediction in predictions.items()
        for kind in ("mean", "variance")
        if getattr(prediction, kind, None) is not None
    }


def in_pyro(cell: Cell, rename: Callable[[str], str] = str) -> dict[str, Any]:
    """The loss, its gradient and predictions at values that the renamed parameters stand for."""
    import pyro
    import torch

    import pyro_moments

    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    model, data = partial(cell.model, models.PYRO), _arguments(cell, torch.as_tensor)
    name, options = cell.objective
    guide = getattr(pyro_moments, cell.guide)(model, **GUIDES[cell.guide])
    elbo = getattr(pyro_moments, name)(**options)
    guide(*data)  # makes the parameters
    leaves = {rename(key): leaf for key, leaf in guide.named_parameters()}
    for key, leaf in leaves.items():
        leaf.data = torch.as_tensor(cell.value(key, tuple(leaf.shape)))
    loss = elbo.differentiable_loss(model, guide, *data)
    numbers = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    if not cell.predicted:
        return {"loss": loss.detach(), **numbers}
    given = _arguments(cell, torch.as_tensor, observed=False)
    covariance = options.get("covariance", "full")
    predictions = pyro_moments.predict(model, guide, *given, covariance=covariance)
    numbers = {"loss": loss, **numbers, **_predicted(predictions)}
    return {key: value.detach() for key, value in numbers.items()}


def in_numpyro(cell: Cell, compiled: Callable | None = None) -> dict[str, Any]:
    """The same; ``compiled`` is for the loss and the predictions in the place of ``jax.jit``."""
    import jax
    import jax.numpy as jnp
    import numpyro

    import numpyro_moments

    model, data = partial(cell.model, models.NUMPYRO), _arguments(cell, jnp.asarray)
    name, options = cell.objective
    guide = getattr(numpyro_moments, cell.guide)(model, **GUIDES[cell.guide])
    elbo = getattr(numpyro_moments, name)(**options)
    svi = numpyro_moments.SVI(model, guide, numpyro.optim.Adam(0.1), elbo)
    state = jax.eval_shape(lambda: svi.init(jax.random.key(0), *data))
    initial = svi.optim.get_params(state.optim_state)
    values = {key: jnp.asarray(cell.value(key, leaf.shape)) for key, leaf in initial.items()}

    @(compiled or jax.jit)
    @jax.value_and_grad
    def loss(values: Any) -> Any:
        return elbo.loss(jax.random.key(0), svi.constrain_fn(values), model, guide, *data)

    value, gradients = loss(values)
    if not cell.predicted:
        return {"loss": value, **gradients}
    given = _arguments(cell, jnp.asarray, observed=False)
    covariance = options.get("covariance", "full")

    @(compiled or jax.jit)
    def predictions(values: Any) -> Any:
        params = svi.constrain_fn(values)
        return _predicted(
            numpyro_moments.predict(model, guide, params, *given, covariance=covariance)
        )

    return {"loss": value, **gradients, **predictions(values)}
