"""Models of posteriordb that are no regressions, as their Stan programs say, for both hosts.

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
from posteriors_designs import DESIGNS, EIGHT_SCHOOLS, Data, Design
from posteriors_models import eight_schools, regression

Draws = dict[str, np.ndarray]


def flat(host: Any, name: str, support: Any, prior: Any) -> Any:
    """A site whose prior is cut off by its support: flat there, and the density a factor.

    Both hosts' guides and samplers take it so; its constant is none of the posterior.
    """
    improper = host.dist.ImproperUniform(support, (), prior.event_shape)
    value = host.sample(name, improper)
    host.factor(f"{name}_prior", prior.log_prob(value))
    return value


def arma(host: Any, data: Data) -> Callable:
    sample, dist, y = host.sample, host.dist, host.array(np.asarray(data["y"], float))

    def model() -> None:
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

    return model


def garch(host: Any, data: Data) -> Callable:
    sample, dist, y = host.sample, host.dist, host.array(np.asarray(data["y"], float))
    first = host.array(np.asarray(data["sigma1"] ** 2))

    def model() -> None:
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

    return model


def drives(host: Any, data: Data) -> Callable:
    """A hidden Markov model of two states, by its forward algorithm."""
    sample, dist, numerics = host.sample, host.dist, host.np
    u, v = (host.array(np.asarray(data[name], float)) for name in "uv")
    alpha = host.array(np.asarray(data["alpha"], float))
    centres = host.array(np.array([0.0, 3.0]))

    def model() -> None:
        rows = [sample(f"theta{k + 1}", dist.Dirichlet(alpha[k])) for k in range(2)]
        log_theta = numerics.log(numerics.stack(rows))
        ordered, prior = dist.constraints.positive_ordered_vector, dist.Normal(centres, 1.0)
        phi, rate = (flat(host, name, ordered, prior.to_event(1)) for name in ("phi", "lambda"))
        emitted = dist.Exponential(phi).log_prob(u[:, None])
        emitted = emitted + dist.Exponential(rate).log_prob(v[:, None])

        def step(gamma: Any, now: Any) -> tuple[Any, Any]:
            moved = gamma[:, None] + log_theta
            gamma = numerics.logaddexp(moved[0], moved[1]) + now
            return gamma, gamma

        gamma, _ = host.scan(step, emitted[0], emitted[1:])
        host.factor("observed", numerics.logaddexp(gamma[0], gamma[1]))

    return model


def _covariance(numerics: Any, distances: Any, rho: Any, alpha: Any) -> Any:
    """Squared exponential."""
    return alpha**2 * numerics.exp(-0.5 * (distances / rho) ** 2)


def _distances(data: Data) -> np.ndarray:
    x = np.asarray(data["x"], float)
    return x[:, None] - x


JITTER = 1e-10


def poisson_process(host: Any, data: Data) -> Callable:
    sample, dist = host.sample, host.dist
    distances, k = host.array(_distances(data)), host.array(np.asarray(data["k"], float))
    jitter = host.array(JITTER * np.eye(len(k)))

    def model() -> None:
        rho = sample("rho", dist.Gamma(25.0, 4.0))
        alpha = sample("alpha", dist.HalfNormal(2.0))
        standard = sample("f_tilde", dist.Normal(0.0, 1.0).expand([len(k)]).to_event(1))
        covariance = _covariance(host.np, distances, rho, alpha) + jitter
        f = host.np.linalg.cholesky(covariance) @ standard
        with host.plate("data", len(k)):
            sample("k", dist.Poisson(host.np.exp(f)), obs=k)

    return model


def gaussian_process(host: Any, data: Data) -> Callable:
    sample, dist = host.sample, host.dist
    distances, y = host.array(_distances(data)), host.array(np.asarray(data["y"], float))
    zero, identity = host.array(np.zeros(len(y))), host.array(np.eye(len(y)))

    def model() -> None:
        rho = sample("rho", dist.Gamma(25.0, 4.0))
        alpha = sample("alpha", dist.HalfNormal(2.0))
        sigma = sample("sigma", dist.HalfNormal(1.0))
        covariance = _covariance(host.np, distances, rho, alpha) + sigma * identity
        sample("y", dist.MultivariateNormal(zero, covariance_matrix=covariance), obs=y)

    return model


def lotka_volterra(host: Any, data: Data) -> Callable:
    sample, dist, numerics = host.sample, host.dist, host.np
    y = host.array(np.asarray([data["y_init"], *data["y"]], float))
    times = np.asarray([0, *data["ts"]], float)
    loc, scale = (host.array(np.array(2 * [part, 0.05])) for part in (1.0, 0.5))

    def derivative(log_z: Any, time: Any, theta: Any) -> Any:
        z = numerics.exp(log_z)
        return numerics.stack([theta[0] - theta[1] * z[1], theta[3] * z[0] - theta[2]])

    def model() -> None:
        positive = dist.constraints.independent(dist.constraints.positive, 1)
        theta = flat(host, "theta", positive, dist.Normal(loc, scale).to_event(1))
        start = sample("z_init", dist.LogNormal(np.log(10.0), 1.0).expand([2]).to_event(1))
        sigma = sample("sigma", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))
        # Stan's equations for the logarithms, which solvers cannot make negative populations of
        log_z = host.integrate(derivative, numerics.log(start), times, theta)
        with host.plate("years", len(y)):
            sample("y", dist.LogNormal(log_z, sigma).to_event(1), obs=y)

    return model


def elimination(host: Any, data: Data) -> Callable:
    """Absorption of a dose, eliminated as Michaelis and Menten say."""
    sample, dist, numerics = host.sample, host.dist, host.np
    dose, volume = data["D"], data["V"]
    times = np.asarray([data["t0"], *data["times"]], float)
    observed, nothing = host.array(np.asarray(data["C_hat"], float)), host.array(np.zeros(1))

    def derivative(c: Any, time: Any, rates: Any) -> Any:
        absorption, half, fastest = rates
        absorbed = numerics.exp(-absorption * time) * dose * absorption / volume
        return absorbed - fastest / volume * c / (half + c)

    def model() -> None:
        rates = [sample(name, dist.HalfCauchy(1.0)) for name in ("k_a", "K_m", "V_m")]
        sigma = sample("sigma", dist.HalfCauchy(1.0))
        c = host.integrate(derivative, nothing, times, numerics.stack(rates))[1:, 0]
        with host.plate("data", len(observed)):
            sample("C_hat", dist.LogNormal(numerics.log(c), sigma), obs=observed)

    return model


def mixture(host: Any, data: Data) -> Callable:
    sample, dist, y = host.sample, host.dist, host.array(np.asarray(data["y"], float))
    zeros = host.array(np.zeros(2))

    def model() -> None:
        ordered, prior = dist.constraints.ordered_vector, dist.Normal(zeros, 2.0).to_event(1)
        mu = flat(host, "mu", ordered, prior)
        sigma = sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
        theta = sample("theta", dist.Beta(5.0, 5.0))
        weights = dist.Categorical(probs=host.np.stack([theta, 1 - theta]))
        with host.plate("data", len(y)):
            sample("y", dist.MixtureSameFamily(weights, dist.Normal(mu, sigma)), obs=y)

    return model


def _schools(data: Data, draws: Draws) -> Draws:
    theta = draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_trans"]
    return {"theta": theta, "mu": draws["mu"], "tau": draws["tau"]}


def _triangle(data: Data, draws: Draws) -> Draws:
    return {**draws, "beta1": draws["share"] * (1 - draws["alpha1"])}


def _process(data: Data, draws: Draws) -> Draws:
    rho, alpha = (draws[name][:, None, None] for name in ("rho", "alpha"))
    covariance = _covariance(np, _distances(data), rho, alpha)
    root = np.linalg.cholesky(covariance + JITTER * np.eye(covariance.shape[-1]))
    return {**draws, "f": (root @ draws["f_tilde"][..., None])[..., 0]}


def _coefficients(design: Design, data: Data, draws: Draws) -> Draws:
    named = dict(zip(design.coefficients(), np.moveaxis(draws["beta"], -1, 0), strict=True))
    own = {} if design.intercept is None else {"Intercept": draws["intercept"]}
    return {**named, **own, "sigma": draws["sigma"]}


@dataclass(frozen=True)
class Kind:
    """What a Stan program says.

    Args:
        make: the model, of host and data.
        positive: the parameters that are, by the names they have before an index.
        parameters: Stan's, of the data and of draws of the sites.
    """

    make: Callable[[Any, Data], Callable]
    positive: tuple[str, ...] = ()
    parameters: Callable[[Data, Draws], Draws] = lambda data, draws: draws


KINDS = {
    EIGHT_SCHOOLS: Kind(eight_schools, ("tau",), _schools),
    "arma-arma11": Kind(arma, ("sigma",)),
    "bball_drive_event_0-hmm_drive_0": Kind(drives, ("phi", "lambda")),
    "garch-garch11": Kind(garch, ("alpha0",), _triangle),
    "gp_pois_regr-gp_pois_regr": Kind(poisson_process, ("rho", "alpha"), _process),
    "gp_pois_regr-gp_regr": Kind(gaussian_process, ("rho", "alpha", "sigma")),
    "hudson_lynx_hare-lotka_volterra": Kind(lotka_volterra, ("theta", "z_init", "sigma")),
    "low_dim_gauss_mix-low_dim_gauss_mix": Kind(mixture, ("sigma",)),
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": Kind(elimination, ("k_a", "K_m", "V_m", "sigma")),
}


@dataclass(frozen=True)
class Case:
    """A posterior, its data and its reference draws' statistics."""

    name: str
    kind: Kind
    data: Data
    reference: dict[str, Any]

    def model(self, host: Any) -> Callable:
        return self.kind.make(host, self.data)

    def parameters(self, draws: Draws) -> Draws:
        """Draws of the reference's parameters, by their names there."""
        by_name: Draws = {}
        for name, values in self.kind.parameters(self.data, draws).items():
            parts = {f"{name}[{i + 1}]": part for i, part in enumerate(values.T)}
            by_name |= parts if values.ndim == 2 else {name: values}
        return {name: by_name[name] for name in self.reference["parameters"]}


def case(path: Path) -> Case:
    stored = json.loads(path.read_text())
    data, reference = stored["data"], stored["reference"]
    return Case(path.stem, _kind(path.stem, data), data, reference)


def _kind(name: str, data: Data) -> Kind:
    if name not in DESIGNS:
        return KINDS[name]
    design = DESIGNS[name](data)
    make = lambda host, data: regression(host, design)  # noqa: E731
    return Kind(make, ("sigma",), partial(_coefficients, design))
