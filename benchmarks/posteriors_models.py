"""Models of posteriordb, as their Stan programs say: functions of a host and of its arrays.

Source: Magnusson et al., posteriordb (github.com/stan-dev/posteriordb).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from posteriors_designs import DESIGNS, EIGHT_SCHOOLS, Design

Data = dict[str, Any]  # arrays by name
Draws = dict[str, np.ndarray]
JITTER = 1e-10


def positive(host: Any, prior: tuple[str, float] | None) -> Any:
    """The prior of a noise."""
    if prior is None:
        return host.dist.ImproperUniform(host.dist.constraints.positive, (), ())
    name, scale = prior
    if name == "HalfStudent":
        return host.dist.FoldedDistribution(host.dist.StudentT(3.0, 0.0, scale))
    return getattr(host.dist, name)(scale)


def coefficients(host: Any, design: Design) -> Any:
    """The prior of all coefficients but an intercept of its own."""
    size = design.x.shape[1]
    if design.beta is None:
        return host.dist.ImproperUniform(host.dist.constraints.real_vector, (), (size,))
    loc, scale = (host.array(np.full(size, part, float)) for part in design.beta)
    return host.dist.Normal(loc, scale).to_event(1)


def regression(design: Design, host: Any, data: Data) -> None:
    predictor = data["x"] @ host.sample("beta", coefficients(host, design))
    if design.intercept is not None:
        predictor = predictor + host.sample("intercept", host.dist.StudentT(*design.intercept))
    sigma = host.sample("sigma", positive(host, design.sigma))
    with host.plate("data", len(data["y"])):
        host.sample("y", host.dist.Normal(predictor, sigma), obs=data["y"])


def eight_schools(host: Any, data: Data) -> None:
    mu = host.sample("mu", host.dist.Normal(0.0, 5.0))
    tau = host.sample("tau", host.dist.HalfCauchy(5.0))
    with host.plate("schools", len(data["y"])):
        standard = host.sample("theta_trans", host.dist.Normal(0.0, 1.0))
        host.sample("y", host.dist.Normal(mu + tau * standard, data["sigma"]), obs=data["y"])


def flat(host: Any, name: str, support: Any, prior: Any) -> Any:
    """A site whose prior is cut off by its support: flat there, and the density a factor.

    Both hosts' guides and samplers take it so; its constant is none of the posterior.
    """
    value = host.sample(name, host.dist.ImproperUniform(support, (), prior.event_shape))
    host.factor(f"{name}_prior", prior.log_prob(value))
    return value


def arma(host: Any, data: Data) -> None:
    sample, dist, y = host.sample, host.dist, data["y"]
    mu = sample("mu", dist.Normal(0.0, 10.0))
    phi = sample("phi", dist.Normal(0.0, 2.0))
    theta = sample("theta", dist.Normal(0.0, 2.0))
    sigma = sample("sigma", dist.HalfCauchy(2.5))

    def step(error: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        before, now = pair
        prediction = mu + phi * before + theta * error
        return now - prediction, prediction

    first = mu + phi * mu
    _, others = host.scan(step, y[0] - first, (y[:-1], y[1:]))
    predictions = host.np.concatenate([first[None], others])
    with host.plate("data", len(y)):
        sample("y", dist.Normal(predictions, sigma), obs=y)


def garch(host: Any, data: Data) -> None:
    sample, dist, y, first = host.sample, host.dist, data["y"], data["sigma1"] ** 2
    mu = sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    alpha0 = sample("alpha0", dist.ImproperUniform(dist.constraints.positive, (), ()))
    # Stan's flat prior on the triangle α₁ + β₁ < 1, by β₁ = share (1 − α₁)
    alpha1 = sample("alpha1", dist.Beta(1.0, 2.0))
    beta1 = sample("share", dist.Uniform(0.0, 1.0)) * (1 - alpha1)

    def step(variance: Any, before: Any) -> tuple[Any, Any]:
        variance = alpha0 + alpha1 * (before - mu) ** 2 + beta1 * variance
        return variance, variance

    _, others = host.scan(step, first, y[:-1])
    variances = host.np.concatenate([first[None], others])
    with host.plate("data", len(y)):
        sample("y", dist.Normal(mu, host.np.sqrt(variances)), obs=y)


def drives(host: Any, data: Data) -> None:
    """A hidden Markov model of two states, by its forward algorithm."""
    sample, dist, numerics = host.sample, host.dist, host.np
    rows = [sample(f"theta{k + 1}", dist.Dirichlet(data["alpha"][k])) for k in range(2)]
    log_theta = numerics.log(numerics.stack(rows))
    ordered = dist.constraints.positive_ordered_vector
    prior = dist.Normal(host.array(np.array([0.0, 3.0])), 1.0).to_event(1)
    phi, rate = (flat(host, name, ordered, prior) for name in ("phi", "lambda"))
    emitted = dist.Exponential(phi).log_prob(data["u"][:, None])
    emitted = emitted + dist.Exponential(rate).log_prob(data["v"][:, None])

    def step(gamma: Any, now: Any) -> tuple[Any, Any]:
        moved = gamma[:, None] + log_theta
        gamma = numerics.logaddexp(moved[0], moved[1]) + now
        return gamma, gamma

    gamma, _ = host.scan(step, emitted[0], emitted[1:])
    host.factor("observed", numerics.logaddexp(gamma[0], gamma[1]))


def covariance(np: Any, x: Any, rho: Any, alpha: Any) -> Any:
    """Squared exponential."""
    return alpha**2 * np.exp(-0.5 * ((x[:, None] - x) / rho) ** 2)


def poisson_process(host: Any, data: Data) -> None:
    sample, dist, x = host.sample, host.dist, data["x"]
    rho = sample("rho", dist.Gamma(25.0, 4.0))
    alpha = sample("alpha", dist.HalfNormal(2.0))
    standard = sample("f_tilde", dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    matrix = covariance(host.np, x, rho, alpha) + JITTER * host.np.eye(len(x))
    f = host.np.linalg.cholesky(matrix) @ standard
    with host.plate("data", len(x)):
        sample("k", dist.Poisson(host.np.exp(f)), obs=data["k"])


def gaussian_process(host: Any, data: Data) -> None:
    sample, dist, x = host.sample, host.dist, data["x"]
    rho = sample("rho", dist.Gamma(25.0, 4.0))
    alpha = sample("alpha", dist.HalfNormal(2.0))
    sigma = sample("sigma", dist.HalfNormal(1.0))
    matrix = covariance(host.np, x, rho, alpha) + sigma * host.np.eye(len(x))
    sample("y", dist.MultivariateNormal(0.0 * x, covariance_matrix=matrix), obs=data["y"])


def mixture(host: Any, data: Data) -> None:
    sample, dist, y = host.sample, host.dist, data["y"]
    prior = dist.Normal(0.0 * y[:2], 2.0).to_event(1)
    mu = flat(host, "mu", dist.constraints.ordered_vector, prior)
    sigma = sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = sample("theta", dist.Beta(5.0, 5.0))
    weights = dist.Categorical(probs=host.np.stack([theta, 1 - theta]))
    with host.plate("data", len(y)):
        sample("y", dist.MixtureSameFamily(weights, dist.Normal(mu, sigma)), obs=y)


def _schools(data: Data, draws: Draws) -> Draws:
    theta = draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_trans"]
    return {"theta": theta, "mu": draws["mu"], "tau": draws["tau"]}


def _triangle(data: Data, draws: Draws) -> Draws:
    return {**draws, "beta1": draws["share"] * (1 - draws["alpha1"])}


def _process(data: Data, draws: Draws) -> Draws:
    rho, alpha = (draws[name][:, None, None] for name in ("rho", "alpha"))
    matrix = covariance(np, data["x"], rho, alpha)
    root = np.linalg.cholesky(matrix + JITTER * np.eye(matrix.shape[-1]))
    return {**draws, "f": (root @ draws["f_tilde"][..., None])[..., 0]}


def _coefficients(design: Design, data: Data, draws: Draws) -> Draws:
    named = dict(zip(design.coefficients(), np.moveaxis(draws["beta"], -1, 0), strict=True))
    own = {} if design.intercept is None else {"Intercept": draws["intercept"]}
    return {**named, **own, "sigma": draws["sigma"]}


@dataclass(frozen=True)
class Kind:
    """What a Stan program says.

    Args:
        program: the model, of host and data.
        positive: the parameters that are, by the names they have before an index.
        parameters: Stan's, of the data and of draws of the sites.
    """

    program: Callable[[Any, Data], None]
    positive: tuple[str, ...] = ()
    parameters: Callable[[Data, Draws], Draws] = lambda data, draws: draws


KINDS = {
    EIGHT_SCHOOLS: Kind(eight_schools, ("tau",), _schools),
    "arma-arma11": Kind(arma, ("sigma",)),
    "bball_drive_event_0-hmm_drive_0": Kind(drives, ("phi", "lambda")),
    "garch-garch11": Kind(garch, ("alpha0",), _triangle),
    "gp_pois_regr-gp_pois_regr": Kind(poisson_process, ("rho", "alpha"), _process),
    "gp_pois_regr-gp_regr": Kind(gaussian_process, ("rho", "alpha", "sigma")),
    "low_dim_gauss_mix-low_dim_gauss_mix": Kind(mixture, ("sigma",)),
}


@dataclass(frozen=True)
class Posterior:
    """A posterior, its data, and statistics of its reference draws."""

    name: str
    kind: Kind
    data: Data
    reference: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Posterior:
        stored = json.loads(path.read_text())
        if path.stem not in DESIGNS:
            data = {name: np.asarray(value, float) for name, value in stored["data"].items()}
            return cls(path.stem, KINDS[path.stem], data, stored["reference"])
        design = DESIGNS[path.stem](stored["data"])
        program, parameters = partial(regression, design), partial(_coefficients, design)
        kind, data = Kind(program, ("sigma",), parameters), {"x": design.x, "y": design.y}
        return cls(path.stem, kind, data, stored["reference"])

    def model(self, host: Any) -> Callable[[], None]:
        arrays = {name: host.array(value) for name, value in self.data.items()}
        return partial(self.kind.program, host, arrays)

    def parameters(self, draws: Draws) -> Draws:
        """Draws of the reference's parameters, by their names there."""
        by_name: Draws = {}
        for name, values in self.kind.parameters(self.data, draws).items():
            parts = {f"{name}[{i + 1}]": part for i, part in enumerate(values.T)}
            by_name |= parts if values.ndim == 2 else {name: values}
        return {name: by_name[name] for name in self.reference["parameters"]}
