"""The classifiers of digits in Pyro: three hidden layers, dropped or with Gaussian weights."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from dropout import Net, init_scale
from dropout_pyro import bayesian_linear
from pyro.nn import PyroModule
from regression import FAMILIES, groups_of
from torch import Tensor

from pyro_moments import (
    BBAlphaELBO,
    DeterministicELBO,
    DVIGuide,
    Fit,
    MCDropoutGuide,
    TridiagonalGuide,
    fit,
    predict,
)


class Network(PyroModule):
    """Three hidden ReLU layers and ten classes; priors N(0, 1)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden0 = bayesian_linear(784, hidden)
        self.hidden1 = bayesian_linear(hidden, hidden)
        self.hidden2 = bayesian_linear(hidden, hidden)
        self.output = bayesian_linear(hidden, 10)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        for layer in (self.hidden0, self.hidden1, self.hidden2):
            x = torch.relu(layer(x))
        logits = self.output(x)
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def he_normal(site: dict) -> Tensor:
    """He's initial weights, and biases of zero."""
    shape = site["fn"].event_shape
    return init_scale(shape) * torch.randn(shape)


def train(
    model: PyroModule,
    guide: PyroModule,
    objective: BBAlphaELBO | DeterministicELBO,
    x: np.ndarray,
    y: np.ndarray,
    net: Net,
) -> Fit:
    return fit(
        model,
        guide,
        torch.as_tensor(x),
        torch.as_tensor(y),
        objective=objective,
        steps=net.steps,
        batch_size=net.batch_size,
        optimiser=partial(torch.optim.Adam, lr=net.learning_rate),
        kl_warm_up=net.kl_warm_up,
        seed=net.seed,
    )


class Classifier:
    """A network trained with dropout.

    Args:
        x: images [n, 784].
        y: their classes [n].
        net: what is trained, and how.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, net: Net) -> None:
        pyro.settings.set(module_local_params=True)  # two trainings share nothing
        pyro.set_rng_seed(net.seed)
        self.model, self.net = Network(net.hidden), net
        self.guide = MCDropoutGuide(self.model, p=net.rates, init_loc_fn=he_normal)
        found = train(self.model, self.guide, self._objective(net.alpha), x, y, net)
        self.seconds_per_step = found.seconds["fitting"] / net.steps
        self.by_draws = found.by_draws  # the last loss, beside draws

    def _objective(self, alpha: float) -> BBAlphaELBO | DeterministicELBO:
        if self.net.propagation == "mean":
            return DeterministicELBO(propagation="mean")
        return BBAlphaELBO(alpha, **self.net.options(self.net.particles))

    def gradient(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the log predictive probability of classes, the energy of α = 1, for the images."""
        pyro.set_rng_seed(self.net.seed)
        images = torch.as_tensor(x).requires_grad_()
        objective, classes = self._objective(1.0), torch.as_tensor(y)
        loss = objective.differentiable_loss(self.model, self.guide, images, classes)
        return -torch.autograd.grad(loss, images)[0].numpy()

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Predictive probabilities of the classes [n, 10]."""
        pyro.set_rng_seed(self.net.seed)
        options = self.net.options(self.net.draws)
        return predict(self.model, self.guide, torch.as_tensor(x), **options)["obs"].probs.numpy()


class GaussianClassifier:
    """A network whose weights have a Gaussian posterior, trained by its ELBO.

    Args:
        x: images [n, 784].
        y: their classes [n].
        family: of the posterior.
        net: what is trained, and how.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, family: str, net: Net) -> None:
        pyro.settings.set(module_local_params=True)  # two trainings share nothing
        pyro.set_rng_seed(net.seed)
        self.model, self.net = Network(net.hidden), net
        options, start = FAMILIES[family], {"init_loc_fn": he_normal, "init_scale": 0.01}
        kind = DVIGuide if options is None else TridiagonalGuide
        self.guide = kind(self.model, **start, **(options or {}))
        objective = DeterministicELBO(**net.options(1))
        found = train(self.model, self.guide, objective, x, y, net)
        self.loss, self.seconds_per_step = found.loss, found.seconds["fitting"] / net.steps
        self.parameters = sum(each.numel() for each in self.guide.parameters())
        self.groups = {} if options is None else groups_of(self.guide.summary())

    @torch.no_grad()
    def drawn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predictive probabilities [n, 10] by draws of the posterior, and the ends [2, n, 10] of
        the 95 % credible intervals of the probabilities."""
        pyro.set_rng_seed(self.net.seed)
        drawn = {"propagation": "sampled", "num_particles": self.net.draws}
        found = predict(self.model, self.guide, torch.as_tensor(x), **drawn)["obs"]
        return found.probs.numpy(), torch.stack(found.credible_interval(0.95)).numpy()

    @torch.no_grad()
    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Predictive probabilities of the classes [n, 10] in closed form."""
        found = predict(self.model, self.guide, torch.as_tensor(x), covariance="diagonal")
        return found["obs"].probs.numpy()
