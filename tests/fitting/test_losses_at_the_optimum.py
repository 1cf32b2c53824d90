"""Of every inexact rule, the loss at the optimum beside that of draws."""

import functools

import jax
import numpy as np
import pytest

from tests.checks.carried import in_numpyro, loss_and_slopes
from tests.checks.jaxprs import by_numpy
from tests.checks.trained import decrease, loss_at, slopes, trained
from tests.fitting.models import CURVE, INPUTS, fresh, network
from tests.fitting.models import trained as trained_anew

ROWS, STEPS, DRAWS, TIMES = 30, 100, 500, 6
OFF, ERRORS = 0.02, 3.0  # relative difference, and standard errors, that are allowed
rng = np.random.default_rng(5)
NOISY = CURVE + 0.5 * rng.standard_t(4, len(CURVE))
RANKS = np.searchsorted([-1.0, 1.0], NOISY)
POSITIVE = rng.gamma(2.0, 0.5 * np.exp(0.5 * CURVE))
COUNTS = rng.poisson(2 * POSITIVE)

ACTIVATIONS = ("gelu", "glu", "relu", "sigmoid", "softplus", "tanh")
ACTIVATIONS += ("celu", "elu", "leaky_relu", "mish", "relu6", "selu", "silu", "softsign")


def negative_binomial(dist, logits):
    """As each host calls it."""
    family = getattr(dist, "NegativeBinomialLogits", dist.NegativeBinomial)
    return family(5.0, logits=logits)


# the data, the number of outputs if there are more, and the distribution of a datum given these
LIKELIHOODS = {
    "Bernoulli": (RANKS > 0, (), lambda h, f, exp: h.dist.Bernoulli(logits=f)),
    "Categorical": (RANKS, (3,), lambda h, f, exp: h.dist.Categorical(logits=f)),
    "Cauchy": (NOISY, (), lambda h, f, exp: h.dist.Cauchy(f, 0.5)),
    "Gamma": (POSITIVE, (), lambda h, f, exp: h.dist.Gamma(2.0, 2.0 * exp(-f))),
    "Laplace": (NOISY, (), lambda h, f, exp: h.dist.Laplace(f, 0.5)),
    "LogNormal": (POSITIVE, (2,), lambda h, f, exp: h.dist.LogNormal(f[:, 0], exp(0.5 * f[:, 1]))),
    "NegativeBinomial": (COUNTS, (), lambda h, f, exp: negative_binomial(h.dist, f)),
    "Normal of two outputs": (
        NOISY,
        (2,),
        lambda h, f, exp: h.dist.Normal(f[:, 0], exp(0.5 * f[:, 1])),
    ),
    "ordinal": (RANKS, (), lambda h, f, exp: h.dist.OrderedLogistic(f, h.array([-1.0, 1.0]))),
    "Poisson": (COUNTS, (), lambda h, f, exp: h.dist.Poisson(exp(f))),
    "StudentT": (NOISY, (), lambda h, f, exp: h.dist.StudentT(4.0, f, 0.5)),
}


TABLE = [
    *(("Bernoulli", unit) for unit in ACTIVATIONS),
    *((name, "tanh") for name in LIKELIHOODS if name != "Bernoulli"),
]
EXACT, FIRST_ORDER = {}, {"rules": "first_order"}
CASES = [*((*row, EXACT) for row in TABLE), ("Bernoulli", "relu", FIRST_ORDER)]


def problem(host, family, unit):
    """A network and its data."""
    y, outputs, likelihood = LIKELIHOODS[family]
    x, y = INPUTS[:ROWS], y[:ROWS].astype(np.int64 if y is RANKS else np.float32)
    model = network(
        host, lambda out: likelihood(host, out, host.np.exp), outputs, width=4, unit=unit
    )
    return model, host.array(x), host.array(y)


@functools.cache
def train():
    """Parameters of all cases, with their names before each."""
    found = {}
    for family, unit, options in CASES:
        host = fresh("pyro")
        objective = host.package.DeterministicELBO(**options)
        options_of_fit = {"objective": objective, "steps": STEPS, "by_draws": False}
        fit = trained_anew(host, *problem(host, family, unit), **options_of_fit)
        found |= {f"{case(family, unit, options)}{name}": fit.params[name] for name in fit.params}
    return found


def case(family, unit, options):
    return ", ".join([family, unit, *options.values()]) + ": "


def stored(*which):
    """Parameters of one case."""
    found = trained("losses", f"{STEPS} steps of L-BFGS in Pyro, seed 0", train)
    names = {name: name.removeprefix(case(*which)) for name in found}
    return {short: found[name] for name, short in names.items() if short != name}


def losses(host, family, unit, options=EXACT):
    """The loss as stated, and by draws, with the standard error of these."""
    params, guide = stored(family, unit, options), host.package.DVIGuide()
    model, *data = problem(host, family, unit)
    objective = host.package.DeterministicELBO(**options)
    sampled = host.package.DeterministicELBO(propagation="sampled", num_particles=DRAWS)
    if host.name == "pyro":
        loss = loss_at(objective, model, guide, params, *data)
        stated, slope = loss.item(), slopes(loss)
        drawn = [sampled.loss(model, guide, *data) for _ in range(TIMES)]
    else:
        stated, slope = loss_and_slopes(objective, model, guide, params, *data)
        carried = in_numpyro(params)
        by_key = by_numpy(lambda key: sampled.loss(key, carried, model, guide, *data))
        drawn = [float(by_key(key)) for key in jax.random.split(jax.random.key(0), TIMES)]
    assert decrease(params, slope) < 0.01  # nats: the rules of today lead here
    return float(stated), np.mean(drawn), np.std(drawn) / (TIMES - 1) ** 0.5


def is_off(stated, drawn, error):
    """Whether draws contradict the loss."""
    return abs(stated - drawn) > max(OFF * abs(drawn), ERRORS * error)


@pytest.mark.trained
@pytest.mark.parametrize(
    ("host", "family", "unit"),
    [
        *(("pyro", *row) for row in TABLE),
        *(("numpyro", name, "tanh") for name in ("Categorical", "Normal of two outputs")),
    ],
    indirect=["host"],
)
def test_the_loss_is_that_of_draws(host, family, unit):
    """Outputs are no Gaussians, nor are these likelihoods quadratic."""
    assert not is_off(*losses(host, family, unit))


@pytest.mark.trained
@pytest.mark.parametrize("host", ["pyro"], indirect=True)
def test_a_rule_of_first_order_is_contradicted(host):
    """So that the comparison can fail."""
    assert is_off(*losses(host, "Bernoulli", "relu", FIRST_ORDER))
