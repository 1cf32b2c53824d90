"""What a sweep cannot do is refused, with its bytes or its step, the user's line and a remedy."""

import jax
import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Step
from moment_calculus.values.elementwise import Applied
from tests.backward.cases import by_derivatives, of_modes
from tests.backward.programs import CASES
from tests.backward.test_exact import check_equal
from tests.checks.jaxprs import by_numpy
from tests.checks.marks import IN_PYRO
from tests.fitting.models import network, started

MIXED = [
    case
    for case in CASES
    if case.name in ("a cumulative sum", "a batch without its mean", "recurrent cell")
]


@pytest.mark.parametrize("case", MIXED, ids=lambda case: case.name)
def test_values_that_mix_rows_are_exact_or_refused_by_their_bytes(case):
    """The largest array that is formed is that of the derivatives of every row by every element."""
    if case.linear:
        check_equal(case.result(), by_derivatives(case, 0.6))
    flow = propagation_of("backward", "exact", memory_limit=50)
    with pytest.raises(UnsupportedMoments, match=r"\d+ bytes; the limit is 50") as refusal:
        of_modes(case.of_arrays(*case.arrays(), flow=flow))
    assert refusal.value.sites
    assert "memory_limit" in str(refusal.value)


def silenced(monkeypatch):
    """A function of a value that no longer knows how to go back."""
    monkeypatch.setattr(Applied, "pull", Step.pull)
    monkeypatch.setattr(Applied, "through", Step.through)


def test_a_step_without_a_pull_is_named(monkeypatch):
    silenced(monkeypatch)
    case = next(case for case in CASES if case.name == "perceptron of tanh")
    with pytest.raises(UnsupportedMoments, match="cannot go back through the step 'Applied'"):
        of_modes(case.result())


def loss_of(host, elbo, model, guide, given, *data):
    """At parameters that :func:`started` made; traced, in NumPyro."""
    if host.name == "pyro":
        return float(elbo.loss(model, guide, *data))
    return float(by_numpy(lambda: elbo.loss(jax.random.key(0), *given, model, guide, *data))())


def test_the_objective_names_line_and_remedy(host, monkeypatch):
    model = network(host, lambda out: host.dist.Normal(out, 0.5), layers=2, width=3)
    x, y = (host.array(np.ones(shape, np.float32)) for shape in ((4, 2), (4,)))
    guide = host.package.DVIGuide()
    given = started(host, model, guide, x, y)
    silenced(monkeypatch)
    elbo = host.package.DeterministicELBO(covariance="backward")
    with pytest.raises(UnsupportedMoments) as refusal:
        loss_of(host, elbo, model, guide, given, x, y)
    text = str(refusal.value)
    assert "cannot go back through the step 'Applied'" in text
    assert "models.py:" in text
    assert "remedy: use covariance='diagonal' or 'full'" in text
    assert "w0" in text


def walk(host):
    """A random walk, whose rows mix all steps."""

    def model(y):
        prior = host.dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1)
        place = host.np.cumsum(host.language.sample("steps", prior), 0)
        with host.language.plate("times", len(y)):
            host.language.sample("obs", host.dist.Normal(place, 0.5), obs=y)

    return model


def test_a_random_walk_is_exact_or_refused_by_its_bytes(host):
    model, guide, y = walk(host), host.package.DVIGuide(init_scale=0.5), host.array(np.arange(6.0))
    given = started(host, model, guide, y)
    losses = {
        covariance: loss_of(
            host, host.package.DeterministicELBO(covariance=covariance), model, guide, given, y
        )
        for covariance in ("backward", "full")
    }
    assert losses["backward"] == pytest.approx(losses["full"], rel=1e-6)
    elbo = host.package.DeterministicELBO(covariance="backward", memory_limit=100)
    with pytest.raises(UnsupportedMoments, match=r"\d+ bytes; the limit is 100") as refusal:
        loss_of(host, elbo, model, guide, given, y)
    assert "steps" in str(refusal.value)


@IN_PYRO
def test_unknown_modes_are_named_with_the_known_ones(host):
    with pytest.raises(ValueError, match="'backwards' is not one of full, backward, diagonal"):
        host.package.DeterministicELBO(covariance="backwards")
