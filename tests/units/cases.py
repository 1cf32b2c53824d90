"""A layer of stochastic units behind Gaussian weights, and its moments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
import torch
from scipy.special import expit, ndtr

from tests.checks.jaxprs import by_numpy

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(4, 3))
CONTRASTS = np.column_stack([np.eye(4), RANDOM.normal(size=(4, 2)), np.ones(4)])
SHARED = np.array([0.5, -1.0, 0.3, 0.8])
LOC = {"w": RANDOM.normal(size=(3, 4)), "s": np.array(0.3)}
SCALE = {"w": RANDOM.uniform(0.2, 0.6, size=(3, 4)), "s": np.array(0.7)}
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Unit(NamedTuple):
    """A unit as users call it, and E[y], E[y²] given its input, by NumPy."""

    draw: Callable[[Any, Any], Any]  # of a host and the input
    mean: Callable | None = None
    second: Callable | None = None


def called(name: str, noise: Callable | None = None) -> Callable[[Any, Any], Any]:
    """A function of the library by its name, with noise of a host."""

    def draw(host: Any, x: Any) -> Any:
        key = () if host.name == "pyro" else (numpyro.prng_key(),)
        rest = () if noise is None else (noise(host.dist),)
        return getattr(host.package.units, name)(*key, x, *rest)

    return draw


def by_host(host: Any, x: Any) -> Any:
    """The same draw by functions of torch and JAX."""
    if host.name == "pyro":
        return torch.bernoulli(torch.sigmoid(x))
    return jax.random.bernoulli(numpyro.prng_key(), jax.nn.sigmoid(x)).astype(x.dtype)


def of_binary(name: str, probability: Callable, noise: Callable | None = None) -> Unit:
    return Unit(called(name, noise), probability, probability)


def rectified_mean(x: np.ndarray) -> np.ndarray:
    z = (x + 0.3) / 0.6
    return 0.6 * (z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))


def rectified_square(x: np.ndarray) -> np.ndarray:
    z = (x + 0.3) / 0.6
    return 0.36 * ((z**2 + 1) * ndtr(z) + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))


def normal(dist: Any) -> Any:
    return dist.Normal(-0.3, 0.6)


def logistic(dist: Any) -> Any:
    return dist.Logistic(0.2, 0.5)


UNITS = {
    "bernoulli_logistic": of_binary("bernoulli_logistic", expit),
    "bernoulli_probit": of_binary("bernoulli_probit", ndtr),
    "binary": of_binary("stochastic_binary", ndtr),
    "binary, normal": of_binary("stochastic_binary", lambda x: ndtr((x + 0.3) / 0.6), normal),
    "binary, logistic": of_binary("stochastic_binary", lambda x: expit((x - 0.2) / 0.5), logistic),
    "rectifier": Unit(called("stochastic_rectifier", normal), rectified_mean, rectified_square),
    "as users write it": Unit(by_host, expit, expit),
}
GUMBEL = Unit(called("gumbel_argmax"))


def array(host: Any, numbers: np.ndarray) -> Any:
    """A copy: JAX 0.10 keeps what it made of an array in another precision."""
    return host.array(np.array(numbers))


def model_of(host: Any, unit: Unit) -> Callable:
    """Contrasts of the units, observed with noise of variance one."""

    def model(x: Any, y: Any = None) -> None:
        zeros = array(host, 0 * LOC["w"])
        w = host.language.sample("w", host.dist.Normal(zeros, 1.0).to_event(2))
        s = host.language.sample("s", host.dist.Normal(zeros[0, 0], 1.0))
        outputs = unit.draw(host, x @ w + s * array(host, SHARED)) @ array(host, CONTRASTS)
        host.observe(x, host.dist.Normal(outputs, 1.0).to_event(1), y)

    return model


def guide_of(host: Any, factor: float = 1.0) -> Callable:
    """The posterior, its standard deviations times a factor."""

    def guide(x: Any, y: Any = None) -> None:
        for name, loc in LOC.items():
            fn = host.dist.Normal(array(host, loc), array(host, factor * SCALE[name]))
            host.language.sample(name, fn.to_event(loc.ndim))

    return guide


def predicted(host: Any, unit: Unit, factor: float = 1.0, **options: Any) -> Any:
    """Mean and epistemic variance of the contrasts, [rows, contrasts]."""
    given = ({},) if host.name == "numpyro" else ()
    model, guide = model_of(host, unit), guide_of(host, factor)

    def run(x: Any) -> tuple[Any, Any]:
        found = host.package.predict(model, guide, *given, x, **options)["obs"]
        return found.mean, found.epistemic_variance

    found = (by_numpy(run) if host.name == "numpyro" else run)(array(host, X))
    return tuple(map(np.asarray, found))


def exact(unit: Unit) -> tuple[np.ndarray, np.ndarray]:
    """The same by quadrature: given the site that they share, units are independent."""
    s = LOC["s"] + SCALE["s"] * NODES
    loc = (X @ LOC["w"])[:, None] + s[:, None] * SHARED  # [rows, nodes of s, units]
    scale = np.sqrt(X**2 @ SCALE["w"] ** 2)[:, None]
    inputs = loc[..., None] + scale[..., None] * NODES
    mean, second = (function(inputs) @ WEIGHTS for function in (unit.mean, unit.second))
    products = mean[..., :, None] * mean[..., None, :]
    same = np.arange(4)
    products[..., same, same] = second
    products = np.einsum("k,nkij->nij", WEIGHTS, products)
    mean = np.einsum("k,nki->ni", WEIGHTS, mean)
    covariance = products - mean[:, :, None] * mean[:, None, :]
    return mean @ CONTRASTS, np.einsum("ic,nij,jc->nc", CONTRASTS, covariance, CONTRASTS)
