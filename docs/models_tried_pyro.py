"""Pyro's own examples and tutorials, and both ELBOs of what is trained on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
from models_tried_sources import load
from models_tried_verdicts import SAMPLES, STEPS, Model, Sites
from pyro.infer import Trace_ELBO

from pyro_moments import SVI, DeterministicELBO, DVIGuide

NAME = "Pyro"


def evaluate(model: Callable, guide: Callable | None, data: tuple[Any, ...], sites: Sites) -> None:
    """Evaluate the deterministic ELBO once."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    DeterministicELBO(sample_sites=sites).loss(model, guide or DVIGuide(), *data)


def elbos(
    model: Callable, guide: Callable | None, data: tuple[Any, ...], sites: Sites, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the deterministic ELBO after training, and of Trace_ELBO."""
    steps, samples = int(share * STEPS), int(share * SAMPLES)
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide, elbo = guide or DVIGuide(), DeterministicELBO(sample_sites=sites)
    svi = SVI(model, guide, elbo)
    svi.step(*data)
    with pyro.validation_enabled(False):  # the first step has checked the program
        for _ in range(steps - 1):
            svi.step(*data)
        ours = [-elbo.loss(model, guide, *data) for _ in range(samples if sites else 1)]
        sampled = Trace_ELBO()
        with torch.no_grad():
            theirs = [-sampled.loss(model, guide, *data) for _ in range(samples)]
    return np.array(ours), np.array(theirs)


def _schools(folder: Path) -> tuple:
    return tuple(load(folder / "examples/eight_schools/svi.py", ["data"]))


def _players(_: Path) -> tuple:
    """Hits of 18 players in 45 at bats each."""
    generator = torch.Generator().manual_seed(0)
    chances = 0.26 + 0.04 * torch.randn(18, generator=generator)
    at_bats = torch.full((18,), 45.0)
    return at_bats, torch.binomial(at_bats, chances, generator=generator)


def _nations(_: Path) -> tuple:
    """Africa, ruggedness and their product against log GDP, of 170 nations."""
    generator = torch.Generator().manual_seed(0)
    africa = (torch.rand(170, generator=generator) < 0.3).float()
    rugged = torch.rand(170, generator=generator) ** 2 * 6
    x = torch.stack([africa, rugged, africa * rugged], -1)
    mean = 9.2 + x @ torch.tensor([-1.9, -0.2, 0.4])
    return x, mean + 0.95 * torch.randn(170, generator=generator)


def _linear(_: Path) -> tuple:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(100, 5, generator=generator)
    weight = torch.randn(5, 2, generator=generator)
    return x, 1 + x @ weight + 0.5 * torch.randn(100, 2, generator=generator)


def _counts(regions: int) -> torch.Tensor:
    """Sequences of two lineages, the second of which grows: [time, regions, lineages]."""
    generator = torch.Generator().manual_seed(0)
    time = torch.arange(14.0)[:, None] * 14 / 5.5
    start = -4 + 0.5 * torch.randn(regions, generator=generator)
    second = torch.sigmoid(start + 0.3 * time)
    total = torch.full_like(second, 200.0)
    counts = torch.binomial(total, second, generator=generator)
    return torch.stack([total - counts, counts], -1)


def _weeks(weeks: int, periods: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Log of weekly counts with a trend and a yearly wave, and the covariates."""
    from pyro.ops.tensor_utils import periodic_features

    generator = torch.Generator().manual_seed(0)
    time = torch.arange(float(weeks)) / 365
    wave = 0.05 * torch.sin(2 * torch.pi * 7 * torch.arange(weeks) / 365.25)
    data = 14 + 0.2 * time + wave + 0.05 * torch.randn(weeks, generator=generator)
    covariates = periodic_features(weeks, 365.25 / 7) if periods else time[:, None]
    return data[:, None], covariates


def _numbers(_: Path) -> tuple:
    return (torch.randn(100, generator=torch.Generator().manual_seed(0)) + 3.0,)


def _remembered(model: Callable) -> Callable:
    return pyro.condition(model, data={"y": torch.tensor([1.0, 1.0, 0.0])})


def _baseball(definition: str) -> Model:
    file, made_of = "examples/baseball.py", "simulated: 18 players, 45 at bats"
    return Model(f"baseball, {definition}", file, definition, _players, made_of)


def _growth(definition: str, regions: int) -> Model:
    def data(_: Path) -> tuple:
        counts = _counts(regions)
        return (counts[:, 0],) if regions == 1 else (counts,)

    made_of = f"simulated: 14 times, {regions} region{'s' * (regions > 1)}, 2 lineages"
    file, given = "tutorial/source/logistic-growth.ipynb", {"dataset": {"time_step_days": 14}}
    return Model(f"logistic growth, {definition}", file, definition, data, made_of, given=given)


def _forecast(definition: str, weeks: int, periods: bool, share: float = 1.0) -> Model:
    return Model(
        f"forecasting I, {definition}",
        "tutorial/source/forecasting_i.ipynb",
        definition,
        lambda _: _weeks(weeks, periods),
        f"simulated: {weeks} weeks",
        build=lambda model: model(),
        share=share,
    )


MODELS = [
    Model("eight schools", "examples/eight_schools/svi.py", "model", _schools, guide="guide"),
    Model("eight schools, DVIGuide", "examples/eight_schools/svi.py", "model", _schools),
    _baseball("fully_pooled"),
    _baseball("not_pooled"),
    _baseball("partially_pooled"),
    _baseball("partially_pooled_with_logit"),
    Model("minipyro", "examples/minipyro.py", "main.model", _numbers, guide="main.guide"),
    Model(
        "Bayesian regression",
        "tutorial/source/bayesian_regression.ipynb",
        "BayesianRegression",
        _nations,
        "simulated: 170 nations",
        build=lambda model: model(3, 1),
    ),
    Model(
        "modules",
        "tutorial/source/modules.ipynb",
        "Model",
        _linear,
        "simulated: 100 points, 5 inputs, 2 outputs",
        build=lambda model: model(5, 2),
    ),
    _growth("basic_model", 1),
    _growth("regional_model", 40),
    _growth("regional_model2", 40),
    _forecast("Model1", 417, periods=False),
    _forecast("Model2", 417, periods=True),
    _forecast("Model3", 52, periods=True, share=0.1),
    Model(
        "working memory",
        "tutorial/source/working_memory.ipynb",
        "model",
        lambda _: (torch.tensor([5.0, 7.0, 9.0]),),
        build=_remembered,
        guide="guide",
    ),
]
