"""What a fit and its predictions are asked, in the framework ``sys.argv[1]``; tiny, and unseen.

Each function is a program of its own for ``alone_program.py``; it asserts only that all of it runs.
"""

import contextlib
import importlib
import sys
import warnings

import numpy as np

NAME = sys.argv[1]
package = importlib.import_module(f"{NAME}_moments")
language = importlib.import_module(NAME)
dist = language.distributions
xp = importlib.import_module({"pyro": "torch", "numpyro": "jax.numpy"}[NAME])
ROWS = 6
X = np.linspace(-1, 1, ROWS).astype(np.float32)
Y = (2 * X + 0.3 * np.cos(9 * X)).astype(np.float32)
COUNTS = np.round(np.exp(X + 0.5))
BITS = (Y > 0).astype(np.float32)
QUICK = {"method": "lbfgs", "steps": 1, "by_draws": False, "progress_bar": False}
CUTS = np.array([-0.5, 0.5], np.float32)

# Of a line f, with a random scale s in those that have one: the likelihood and what it observed.
LIKELIHOODS = {
    "Normal": (lambda f, s: dist.Normal(f, s), Y),
    "StudentT": (lambda f, s: dist.StudentT(4.0, f, s), Y),
    "Laplace": (lambda f, s: dist.Laplace(f, s), Y),
    "Cauchy": (lambda f, s: dist.Cauchy(f, s), Y),
    "LogNormal": (lambda f, s: dist.LogNormal(f, s), np.exp(Y)),
    "Exponential": (lambda f, s: dist.Exponential(xp.exp(f)), np.exp(Y)),
    "Gamma": (lambda f, s: dist.Gamma(2.0, xp.exp(f)), np.exp(Y)),
    "InverseGamma": (lambda f, s: dist.InverseGamma(3.0, xp.exp(f)), np.exp(Y)),
    "Weibull": (lambda f, s: dist.Weibull(xp.exp(f), 2.0), np.exp(Y)),
    "Beta": (lambda f, s: dist.Beta(xp.exp(f), 2.0), 0.2 + 0.1 * COUNTS),
    "Bernoulli": (lambda f, s: dist.Bernoulli(logits=f), BITS),
    "Binomial": (lambda f, s: dist.Binomial(9, logits=f), COUNTS),
    "BetaBinomial": (lambda f, s: dist.BetaBinomial(xp.exp(f), 2.0, 9), COUNTS),
    "Poisson": (lambda f, s: dist.Poisson(xp.exp(f)), COUNTS),
    "GammaPoisson": (lambda f, s: dist.GammaPoisson(2.0, xp.exp(f)), COUNTS),
    "Geometric": (lambda f, s: dist.Geometric(logits=f), COUNTS),
    "OrderedLogistic": (lambda f, s: dist.OrderedLogistic(f, array(CUTS)), BITS),
    "Categorical": (lambda f, s: dist.Categorical(logits=f[..., None] * array(CUTS)), BITS),
}
METHODS = {
    "interval": lambda p, y: p.interval(0.9),
    "credible_interval": lambda p, y: p.credible_interval(0.9),
    "quantile": lambda p, y: p.quantile([0.1, 0.5]),
    "cdf": lambda p, y: p.cdf(y),
    "log_prob": lambda p, y: p.log_prob(y),
    "sample": lambda p, y: p.sample(2, **key("key")),
    "to_dataframe": lambda p, y: p.to_dataframe(),
    "probs": lambda p, y: p.probs,
    "entropy": lambda p, y: p.entropy,
    "mutual_information": lambda p, y: p.mutual_information,
    "variation_ratio": lambda p, y: p.variation_ratio,
    "variances": lambda p, y: (p.mean, p.epistemic_variance, p.aleatoric_variance),
    "calibration": lambda p, y: str(package.calibration(p, y)),
}


def array(values):
    """In the framework; of NumPy, in single precision."""
    return xp.as_tensor(values) if NAME == "pyro" else xp.asarray(values)


def key(option):
    """What draws take in NumPyro."""
    return {option: importlib.import_module("jax").random.key(0)} if NAME == "numpyro" else {}


def line(likelihood):
    """A line with a random scale."""

    def model(x, y=None):
        b = language.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        s = language.sample("s", dist.HalfNormal(1.0))
        with language.plate("data", len(x)):
            language.sample("y", likelihood(b[0] + b[1] * x, s), obs=y)

    return model


def network(x, y=None):
    """Two random layers."""
    first = language.sample("first", dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
    last = language.sample("last", dist.Normal(0.0, 1.0).expand([3, 1]).to_event(2))
    with language.plate("data", len(x)):
        mean = (xp.tanh(x[:, None] @ first) @ last)[:, 0]
        language.sample("y", dist.Normal(mean, 0.3), obs=y)


def ask(prediction, observed, methods=METHODS):
    """All methods, but those that the family is refused."""
    for name in methods:
        with contextlib.suppress(package.UnsupportedMoments):
            METHODS[name](prediction, observed)


def predictions(*names):
    """Predictions of some likelihoods, all by default, by all methods."""
    x = array(X)
    for name in names or LIKELIHOODS:
        likelihood, data = LIKELIHOODS[name]
        model, observed = line(likelihood), array(data.astype(np.float32))
        trained = package.fit(model, package.DVIGuide(), x, observed, **QUICK)
        ask(package.predict(model, trained, x)["y"], observed)


def by_other_ways():
    """Predictions by particles, backwards and by dropout, with other objectives."""
    x, y = array(X), array(Y)
    for objective, guide in (
        (package.DeterministicELBO(covariance="backward"), package.DVIGuide()),
        (package.BBAlphaELBO(alpha=0.5), package.MCDropoutGuide(p=0.1)),
        (package.DeterministicELBO(covariance="diagonal"), package.TridiagonalGuide()),
    ):
        package.fit(network, guide, x, y, objective=objective, **QUICK)
    trained = package.fit(network, package.DVIGuide(), x, y, **QUICK)
    few = {"propagation": "sampled", "num_particles": 3, **key("rng_key")}
    ask(package.predict(network, trained, x, **few)["y"], y)
    by_sweep = package.predict(network, trained, x, covariance="backward")["y"]
    str(by_sweep.attribution())
    package.moment_accuracy(network, trained, x, y)
    package.pruning_report(network, trained, x, y)


def verbs():
    """What is asked of a fit of counts, and its storage."""
    x, y = array(X), array(COUNTS.astype(np.float32))
    model = line(LIKELIHOODS["Poisson"][0])
    trained = package.fit(model, package.DVIGuide(), x, y, method="newton", progress_bar=False)
    str(trained)
    package.diagnose(model, trained, x, y, verbose=False, held_out=(x, y))
    response = package.linear_response(model, trained, x, y)
    response.summary()
    ask(response.predict(x)["y"], y, ["interval", "calibration"])
    draws = package.to_inference_data(response, model, x, y)
    package.loo(draws)
    package.loo_weights(draws)
    package.predictive_p_values(draws, {"largest": np.max})
    package.save("trained.safetensors", model, trained, x, y)
    package.load("trained.safetensors", model, package.DVIGuide(), x)
    few = {"num_warmup": 4, "num_samples": 8}
    str(package.compare_with_nuts(model, trained, x, y, **few))
    package.propagate(xp.exp, package.Moments(x, variance=x * x))


warnings.simplefilter("ignore")
