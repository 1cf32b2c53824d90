"""Every refusal says what is wrong, which sites are concerned and what to do about it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoNormal

from numpyro_moments import DeterministicELBO, UnsupportedMoments
from numpyro_moments.evaluation.failure_causes import (
    diagnose_errors,
    explain_infinite_loss,
    refuse_infinite_data,
)
from tests.checks.jaxprs import by_numpy
from tests.checks.predictions import Refusal
from tests.numpyro import models

X, Y = models.data()


def with_nan(data: np.ndarray, *index: int) -> np.ndarray:
    data = data.copy()
    data[index] = np.nan
    return data


def inside(x, y):
    """Reads its weights inside the data plate."""
    with numpyro.plate("data", len(x)):
        shape = [x.shape[-1], 1]
        weight = numpyro.sample("weight", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
        mean = jnp.einsum("ni,io->no", x, weight)[:, 0]
        numpyro.sample("obs", dist.Normal(mean, 0.3), obs=y)


def linear(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    models.observe(x, dist.Normal(x @ w, 1.0), y)


def scalar(step: Callable[[Any], Any]) -> Callable:
    """A model that passes one Gaussian site through a step and observes the result."""

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("other", dist.Normal(w, 1.0), obs=y[1])
        numpyro.sample("obs", dist.Normal(step(w), 1.0), obs=y[0])

    return model


def ruleless(w):
    return jax.scipy.special.gammainc(2.0, jnp.exp(w))


def two_levels(x, y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(a, 1.0))
    numpyro.sample("obs", dist.Normal(b, 1.0), obs=y[0])


def chained_guide(x, y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("b", dist.Normal(0.0, jnp.exp(a)))


def other_guide(x, y):
    numpyro.sample("w", dist.Normal(0.0, 1.0))


def loss(model: Any, guide: Any = None, x: Any = X, y: Any = Y, **options: Any) -> Callable:
    def evaluated():
        parameters: dict = {}
        own = guide
        if own is None:
            own = AutoNormal(model)
            with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
                own(X, Y)
            sites = trace.items()
            parameters = {n: s["value"] for n, s in sites if s["type"] == "param"}
        elbo = DeterministicELBO(**options)
        return elbo.loss(jax.random.key(0), parameters, model, own, x, y)

    def run():
        with diagnose_errors(model, (x, y), {}):
            jax.eval_shape(evaluated)  # refused before anything is compiled

    return run


REFUSALS = {
    "operation without a rule": Refusal(
        loss(scalar(ruleless)),
        r"igamma: no moment rule.*\n  where: .*test_refusals\.py:\d+\n  latent sites: w\n"
        r"  feeds sites: obs\n",
        r"moment_rule\('igamma'\)",
        ("w",),
    ),
    "operation inside a loop": Refusal(
        loss(scalar(lambda w: jax.lax.fori_loop(0, 3, lambda _, v: ruleless(v), w))),
        r"igamma in scan: no moment rule.*\n  where: .*test_refusals\.py:\d+\n  latent sites: w\n"
        r"  feeds sites: obs\n",
        "sample_sites",
        ("w",),
    ),
    "branching": Refusal(
        loss(scalar(lambda w: jax.lax.cond(w > 0, lambda v: v + 1, lambda v: v, w))),
        "random value to int32",
        r"jnp\.where",
        ("w",),
    ),
    "looping": Refusal(
        loss(
            scalar(lambda w: jax.lax.while_loop(lambda v: v < 3, lambda v: v + 1, w)), other_guide
        ),
        "while: a while loop over random values",
        "fori_loop",
        ("w",),
    ),
    "guide that is not mean-field": Refusal(
        loss(two_levels, chained_guide),
        r"'b' has a scale that depends on other latent sites \(a\): the guide is neither",
        "scales of guide sites certain",
        ("a", "b"),
    ),
    "latent site missing in the guide": Refusal(
        loss(two_levels, other_guide), "'a' of the model is not in the guide", "add it", ("a",)
    ),
    "weights read inside the data plate": Refusal(
        loss(inside),
        r"latent site\(s\) weight were sampled inside plate 'data'.*of its own",
        "outside of 'data'",
        ("weight",),
    ),
    "unknown site to be drawn": Refusal(
        loss(linear, sample_sites=["v"]),
        "sample_sites names 'v', not a latent site of the guide; its latent sites are 'w'",
        "name sites as the model does",
        ("w",),
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.filterwarnings("ignore:Found .*vars in")
def test_refusal_names_cause_sites_and_remedy(refusal):
    refusal.check()


def observed(value):
    return {"type": "sample", "is_observed": True, "value": value}


def test_data_that_are_not_finite_are_named():
    with pytest.raises(UnsupportedMoments, match=r"site 'obs' has 1 NaN.* of 20.* row 3") as raised:
        refuse_infinite_data("obs", observed(with_nan(Y, 3)))
    assert "jnp.nan_to_num" in raised.value.remedy
    refuse_infinite_data("obs", observed(Y))
    refuse_infinite_data("obs", observed(np.arange(3)))


def test_infinite_loss_is_explained_by_data_then_by_inputs():
    with pytest.raises(UnsupportedMoments, match="site 'obs' has 1 NaN"):
        explain_infinite_loss({"obs": observed(with_nan(Y, 3))}, linear, (X, Y), {})
    with pytest.raises(UnsupportedMoments, match=r"input 'x'.*row 2, column 1"):
        explain_infinite_loss({"obs": observed(Y)}, linear, (with_nan(X, 2, 1),), {"y": Y})
    explain_infinite_loss({"obs": observed(Y)}, linear, (X, Y), {})  # another cause


def test_values_unknown_under_jit_are_passed_over():
    @by_numpy
    def run(x, y):
        explain_infinite_loss({"obs": observed(y)}, linear, (x, y), {})
        return y

    run(with_nan(X, 2, 1), with_nan(Y, 3))


def test_nested_inputs_and_handlers_are_looked_through():
    def model(batch):
        del batch

    wrapped = numpyro.handlers.seed(numpyro.handlers.scale(model, scale=2.0), rng_seed=0)
    with pytest.raises(UnsupportedMoments, match=r"input 'batch'.*row 0, column 0"):
        explain_infinite_loss({}, wrapped, ({"x": with_nan(X, 0, 0)},), {})


def test_causes_replace_errors_only_where_they_are_found():
    empty = pytest.raises(UnsupportedMoments, match=r"batch is empty.*'x'.*\(0, 3\)")
    with empty as raised, diagnose_errors(linear, (X[:0], Y[:0]), {}):
        raise ZeroDivisionError("division by zero")
    assert raised.value.remedy.startswith("skip empty batches")
    with pytest.raises(ZeroDivisionError), diagnose_errors(linear, (X, Y), {}):
        raise ZeroDivisionError("division by zero")
    infinite = pytest.raises(UnsupportedMoments, match="input 'x' of")
    with infinite, diagnose_errors(linear, (with_nan(X, 2, 1), Y), {}):
        raise ValueError("Normal distribution got invalid loc parameter.")
    with pytest.raises(ValueError, match="invalid loc"), diagnose_errors(linear, (X, Y), {}):
        raise ValueError("Normal distribution got invalid loc parameter.")
