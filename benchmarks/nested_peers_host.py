"""PyMC as a host of the models of `nested_models`: plain, or with its field as one vector, which
pymc-extras' INLA takes with its precision.
"""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt

NUMPY = SimpleNamespace(
    exp=pt.exp, log=pt.log, sqrt=pt.sqrt, cumsum=pt.cumsum, eye=pt.eye, zeros=pt.zeros
)


@dataclass(frozen=True)
class Prior:
    """A distribution of PyMC that waits for a name."""

    kind: type
    options: dict
    shape: tuple[int, ...] = ()

    def expand(self, shape):
        return replace(self, shape=tuple(shape))

    def to_event(self, dimensions):
        return self

    def log_prob(self, value):
        return pm.logp(self.kind.dist(**self.options), value)


def negative_binomial(concentration, logits):
    options = {"mu": concentration * pt.exp(logits), "alpha": concentration}
    return Prior(pm.NegativeBinomial, options)


def multivariate_normal(mean, precision_matrix):
    size = mean.type.shape or (precision_matrix.type.shape[0],)
    return Prior(pm.MvNormal, {"mu": mean, "tau": precision_matrix}, size)


DISTRIBUTIONS = SimpleNamespace(
    Normal=lambda mean, deviation: Prior(pm.Normal, {"mu": mean, "sigma": deviation}),
    HalfNormal=lambda scale: Prior(pm.HalfNormal, {"sigma": scale}),
    HalfCauchy=lambda scale: Prior(pm.HalfCauchy, {"beta": scale}),
    LogNormal=lambda mean, deviation: Prior(pm.LogNormal, {"mu": mean, "sigma": deviation}),
    Uniform=lambda low, high: Prior(pm.Uniform, {"lower": low, "upper": high}),
    Bernoulli=lambda logits: Prior(pm.Bernoulli, {"logit_p": logits}),
    Poisson=lambda rate: Prior(pm.Poisson, {"mu": rate}),
    NegativeBinomial=negative_binomial,
    MultivariateNormal=multivariate_normal,
    ImproperUniform=lambda support, batch, event: Prior(pm.Flat, {}, event),
    constraints=SimpleNamespace(real_vector=None),
)


class Host:
    """What the models call."""

    np, dist = NUMPY, DISTRIBUTIONS

    def __init__(self):
        self.sizes = ()

    @contextmanager
    def plate(self, name, size):
        self.sizes = (*self.sizes, size)
        yield
        self.sizes = self.sizes[:-1]

    def sample(self, name, prior, obs=None):
        if obs is not None:
            return prior.kind(name, **prior.options, observed=np.asarray(obs))
        return prior.kind(name, **prior.options, shape=prior.shape or self.sizes)

    def factor(self, name, value):
        pm.Potential(name, value)


def plain(case):
    """A case as a model of PyMC, site by site."""
    with pm.Model() as model:
        case.make(Host())(*data(case))
    return model


def data(case):
    """Arrays as tensors, the observations as they are."""
    return (*(pt.as_tensor(part) for part in case.data[:-1]), case.data[-1])


class OneVector(Host):
    """A host that gathers priors of the field first, and then takes it from one vector."""

    def __init__(self, over):
        super().__init__()
        self.over, self.hyperparameters, self.field = over, {}, {}
        self.vector = None

    def sample(self, name, prior, obs=None):
        if obs is not None:
            return super().sample(name, prior, obs) if self.vector else None
        if name in self.over:
            if name not in self.hyperparameters:
                self.hyperparameters[name] = super().sample(name, prior)
            return self.hyperparameters[name]
        if self.vector:
            return self.vector[name]
        shape = prior.shape or self.sizes
        self.field[name] = self.precision(name, prior, shape), shape
        return pt.zeros(shape)

    def precision(self, name, prior, shape):
        """The precision matrix of a site's prior."""
        if prior.kind is pm.MvNormal:
            return prior.options["tau"]
        mean = prior.options.get("mu")
        if not (isinstance(mean, float) and mean == 0):
            raise NotImplementedError(f"the prior mean of {name} is another latent site")
        size = int(np.prod(shape, dtype=int))
        return pt.eye(size) / prior.options["sigma"] ** 2

    def factor(self, name, value):
        raise NotImplementedError("its field has a factor, and is no variable with a Normal prior")


def latent_vector(case):
    """A case as a model of PyMC whose field is one vector x; x and its precision."""
    host = OneVector(case.over)
    make = case.make(host)
    with pm.Model() as model:
        make(*data(case))
        precision = pt.linalg.block_diag(*(part for part, _ in host.field.values()))
        sizes = [int(np.prod(shape, dtype=int)) for _, shape in host.field.values()]
        x = pm.MvNormal("x", mu=np.zeros(sum(sizes)), tau=precision)
        ends = np.cumsum(sizes)
        host.vector = {
            name: x[end - size : end].reshape(shape)
            for (name, (_, shape)), end, size in zip(host.field.items(), ends, sizes, strict=True)
        }
        make(*data(case))
    return model, x, precision
