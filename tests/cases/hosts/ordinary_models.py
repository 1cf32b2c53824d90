"""Models as they are met everywhere, written once for both hosts; see :mod:`.models`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro
import numpyro.infer.reparam
import pyro
import pyro.infer.reparam

from tests.cases.hosts import models

POINTS, GROUPS = models.POINTS, models.GROUPS
_RANDOM = np.random.default_rng(3)
DATA = models.arrays() | {
    "binary": (_RANDOM.random(POINTS) < 0.6) * 1.0,
    "counts": _RANDOM.poisson(3.0, POINTS) * 1.0,
    "times": _RANDOM.gamma(2.0, 1.0, POINTS),
    "levels": _RANDOM.integers(0, 4, POINTS),
    "effects": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]) / 10,
    "errors": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]) / 10,
}


def line(host: Any, x: Any) -> Any:
    """A linear predictor."""
    slope = models.weights(host, "slope", models.INPUTS)
    return x @ slope + host.sample("intercept", host.dist.Normal(0.0, 2.0))


def regression(observe: Callable, target: str, noise: Callable | None = None) -> tuple:
    """A generalised linear model; its noise, if it has any, is a latent site."""

    def model(host, x, y):
        predictor = line(host, x)
        scale = host.sample("noise", noise(host.dist)) if noise else 1.0
        with host.plate("data", POINTS):
            host.sample("obs", observe(host, predictor, scale), obs=y)

    return model, f"x {target}"


def proportion(prior: Callable, observe: Callable, target: str) -> tuple:
    """One probability or rate for all."""

    def model(host, y):
        p = host.sample("p", prior(host.dist))
        with host.plate("data", POINTS):
            host.sample("obs", observe(host.dist, p), obs=y)

    return model, target


def eight_schools(centred: bool) -> tuple:
    def model(host, effects, errors):
        mu = host.sample("mu", host.dist.Normal(0.0, 5.0))
        tau = host.sample("tau", host.dist.HalfCauchy(5.0))
        with host.plate("schools", 8):
            if centred:
                theta = host.sample("theta", host.dist.Normal(mu, tau))
            else:
                theta = mu + tau * host.sample("theta", host.dist.Normal(0.0, 1.0))
            host.sample("obs", host.dist.Normal(theta, errors), obs=effects)

    return model, "effects errors"


def reparametrised(configuration: Callable) -> tuple:
    centred, arguments = eight_schools(centred=True)

    def model(host, *data):
        in_pyro = host is models.PYRO
        strategies = (pyro if in_pyro else numpyro).infer.reparam
        handler = pyro.poutine.reparam if in_pyro else numpyro.handlers.reparam
        handler(centred, config=configuration(strategies))(host, *data)

    return model, arguments


def varying_slopes(host, x, groups, y):
    with host.plate("groups", GROUPS):
        intercept = host.sample("intercept", host.dist.Normal(0.0, 1.0))
        slope = host.sample("slope", host.dist.Normal(0.5, 1.0))
    noise = host.sample("noise", host.dist.HalfNormal(1.0))
    with host.plate("data", POINTS):
        mean = intercept[groups] + slope[groups] * x[:, 0]
        host.sample("obs", host.dist.Normal(mean, noise), obs=y)


def ordinal(host, x, levels):
    predictor = line(host, x)
    cuts = host.np.asarray([-1.0, 0.0, 1.0])
    with host.plate("data", POINTS):
        host.sample("obs", host.dist.OrderedLogistic(predictor, cuts), obs=levels)


def horseshoe(host, x, y):
    tau = host.sample("tau", host.dist.HalfCauchy(1.0))
    with host.plate("inputs", models.INPUTS):
        local = host.sample("local", host.dist.HalfCauchy(1.0))
        raw = host.sample("raw", host.dist.Normal(0.0, 1.0))
    with host.plate("data", POINTS):
        host.sample("obs", host.dist.Normal(x @ (raw * local * tau), 0.5), obs=y)


def improper(host, y):
    constraint = (pyro if host is models.PYRO else numpyro).distributions.constraints
    mean = host.sample("mean", host.dist.ImproperUniform(constraint.real, (), ()))
    with host.plate("data", POINTS):
        host.sample("obs", host.dist.Normal(mean, 1.0), obs=y)


def positive(function: Callable) -> tuple:
    def model(host, y):
        s = host.sample("s", host.dist.Gamma(2.0, 2.0))
        with host.plate("data", POINTS):
            host.sample("obs", host.dist.Normal(0.0, function(host.np, s)), obs=y)

    return model, "y"


def two_positive(observe: Callable, target: str) -> tuple:
    """Two positive parameters, which the likelihood has together."""

    def model(host, x, y):
        first = host.sample("first", host.dist.HalfNormal(1.0))
        second = host.sample("second", host.dist.Gamma(2.0, 2.0))
        with host.plate("data", POINTS):
            host.sample("obs", observe(host, first, second, x[:, 0] ** 2), obs=y)

    return model, f"x {target}"


def carry_over(host, x, y):
    """Advertising that wears off: the weights of lags are powers of a random share."""
    kept = host.sample("kept", host.dist.Beta(2.0, 2.0))
    with host.plate("data", POINTS):
        spending = x**2 @ kept ** host.np.asarray([0.0, 1.0, 2.0])
        host.sample("obs", host.dist.Normal(spending, 0.5), obs=y)


def local_scales(host, y):
    shape = host.sample("shape", host.dist.Normal(0.0, 1.0))
    with host.plate("data", POINTS):
        scale = host.sample("scale", host.dist.LogNormal(shape, 0.5))
        host.sample("obs", host.dist.Normal(0.0, scale), obs=y)


def geometric(host, logits):
    if host is models.PYRO:
        return host.dist.Geometric(logits=logits)
    return host.dist.GeometricLogits(logits)


def negative_binomial(host, logits):
    if host is models.PYRO:
        return host.dist.NegativeBinomial(4.0, logits=logits)
    return host.dist.NegativeBinomialLogits(4.0, logits)


CASES: dict[str, tuple[Callable, str]] = {
    "linear": regression(lambda h, f, s: h.dist.Normal(f, s), "y", lambda d: d.Uniform(0.0, 5.0)),
    "robust": regression(
        lambda h, f, s: h.dist.StudentT(4.0, f, s), "y", lambda d: d.HalfNormal(1.0)
    ),
    "median": regression(lambda h, f, s: h.dist.Laplace(f, s), "y", lambda d: d.Exponential(1.0)),
    "log-normal": regression(
        lambda h, f, s: h.dist.LogNormal(f, s), "times", lambda d: d.InverseGamma(3.0, 2.0)
    ),
    "logistic": regression(lambda h, f, s: h.dist.Bernoulli(logits=f), "binary"),
    "probabilities": regression(lambda h, f, s: h.dist.Bernoulli(1 / (1 + h.np.exp(-f))), "binary"),
    "complementary log-log": regression(
        lambda h, f, s: h.dist.Bernoulli(1 - h.np.exp(-h.np.exp(f))), "binary"
    ),
    "binomial": regression(lambda h, f, s: h.dist.Binomial(9, logits=f), "counts"),
    "Poisson": regression(lambda h, f, s: h.dist.Poisson(h.np.exp(f)), "counts"),
    "negative binomial": regression(lambda h, f, s: negative_binomial(h, f), "counts"),
    "overdispersed": regression(
        lambda h, f, s: h.dist.GammaPoisson(s, s / h.np.exp(f)),
        "counts",
        lambda d: d.Gamma(2.0, 1.0),
    ),
    "waiting": regression(lambda h, f, s: h.dist.Exponential(h.np.exp(f)), "times"),
    "gamma": regression(
        lambda h, f, s: h.dist.Gamma(s, s / h.np.exp(f)), "times", lambda d: d.LogNormal(0.0, 1.0)
    ),
    "geometric": regression(lambda h, f, s: geometric(h, f), "counts"),
    "Beta and Bernoulli": proportion(
        lambda d: d.Beta(2.0, 2.0), lambda d, p: d.Bernoulli(p), "binary"
    ),
    "Beta and Binomial": proportion(
        lambda d: d.Beta(2.0, 2.0), lambda d, p: d.Binomial(9, p), "counts"
    ),
    "Uniform and Geometric": proportion(
        lambda d: d.Uniform(0.0, 1.0), lambda d, p: d.Geometric(p), "counts"
    ),
    "Gamma and Poisson": proportion(
        lambda d: d.Gamma(2.0, 1.0), lambda d, p: d.Poisson(p), "counts"
    ),
    "ordinal": (ordinal, "x levels"),
    "hierarchical": (models.hierarchical, "x groups y"),
    "varying slopes": (varying_slopes, "x groups y"),
    "eight schools": eight_schools(centred=True),
    "eight schools, not centred": eight_schools(centred=False),
    "location and scale": reparametrised(lambda s: {"theta": s.LocScaleReparam(0.0)}),
    "half centred": reparametrised(lambda s: {"theta": s.LocScaleReparam(0.5)}),
    "horseshoe": (horseshoe, "x y"),
    "two scales": two_positive(lambda h, a, b, x: h.dist.Normal(0.0, a + b), "y"),
    "two variances": two_positive(
        lambda h, a, b, x: h.dist.Normal(0.0, h.np.sqrt(a**2 + b**2 * x)), "y"
    ),
    "signal and background": two_positive(lambda h, a, b, x: h.dist.Poisson(a + b * x), "counts"),
    "share": two_positive(lambda h, a, b, x: h.dist.Bernoulli(a / (a + b)), "binary"),
    "saturation": two_positive(lambda h, a, b, x: h.dist.Normal(x**a / (x**a + b**a), 0.5), "y"),
    "carry-over": (carry_over, "x y"),
    "improper": (improper, "y"),
    "local scales": (local_scales, "y"),
    "scale": positive(lambda xp, s: s),
    "variance": positive(lambda xp, s: xp.sqrt(s)),
    "precision": positive(lambda xp, s: 1 / xp.sqrt(s)),
    "power": positive(lambda xp, s: s**-0.5),
}
