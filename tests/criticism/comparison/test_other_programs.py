"""Comparisons of programs with parameters, subsamples, and likelihoods without predictions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.checks.marks import IN_PYRO
from tests.criticism.containers.programs import NOISE, X, Y, doubles

CHAINS = {"num_warmup": 40, "num_samples": 80, "num_chains": 1}
FEW = {"num_warmup": 20, "num_samples": 20, "num_chains": 1, "kernel": {"max_tree_depth": 4}}


def compared(host, model, chains=CHAINS, **options):
    with doubles(host):
        data = [host.array(part) for part in (X, Y)]
        result = host.fit(model, *data, **options)
        return host.package.compare_with_nuts(model, result, *data, **chains)


def noise_parameter(host, begin):
    """The standard deviation of the noise, which is trained."""
    positive = host.dist.constraints.positive
    return host.language.param("scale", host.array(np.array(begin)), constraint=positive)


def with_parameter(host):
    """A regression whose noise is a parameter, which begins far from where it is trained to."""

    def model(x, y=None):
        weight, scale = host.weight(), noise_parameter(host, 5.0)
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal(x @ weight, scale), obs=y)

    return model


def with_effects(host):
    """Effects of data in a plate of which the model takes a part."""

    def model(x, y=None):
        weight, scale = host.weight(), noise_parameter(host, NOISE)
        with host.language.plate("data", len(x), subsample_size=5) as rows:
            effect = host.language.sample("effect", host.dist.Normal(0.0, 1.0))
            noise = host.dist.Normal(x[rows] @ weight + effect, scale)
            host.language.sample("obs", noise, obs=None if y is None else y[rows])

    return model


def of_two(host):
    """A regression whose noise is a mixture, which has no predictions in closed form."""

    def model(x, y=None):
        weight = host.weight()
        shares = host.array(np.array([0.5, 0.5]))
        shifts = host.array(np.array([-0.1, 0.1]))
        parts = host.dist.Normal((x @ weight)[:, None] + shifts, NOISE)
        noise = host.dist.MixtureSameFamily(host.dist.Categorical(shares), parts)
        with host.language.plate("data", len(x)):
            host.language.sample("obs", noise, obs=y)

    return model


@IN_PYRO
def test_chains_have_the_trained_parameters(host):
    found = compared(host, with_parameter(host), method="newton")
    (site,) = found.sites
    assert found.seconds["NUTS"] > 0
    assert site.ratios["linear response"] == pytest.approx(1, abs=0.35)
    assert np.abs(site.difference).max() < 5 * site.error.max()


def test_chains_have_whole_plates(host):
    found = compared(host, with_effects(host), FEW, steps=5)
    draws = found.inference_data["NUTS"].posterior
    assert found.reference.get_samples()["effect"].shape == (20, len(X))
    assert draws["effect"].shape == (1, 20, len(X))
    assert found.predictive[0].difference.shape == (len(X),)
    means = draws.mean(("chain", "draw"))
    residuals = Y - X @ means["weight"].values
    assert np.corrcoef(means["effect"], residuals)[0, 1] > 0.8
    if host.name == "numpyro":  # which substitutes the trained parameters
        energy = found.reference.last_state.potential_energy
        lp = found.inference_data["NUTS"].sample_stats["lp"].values[:, -1]
        np.testing.assert_allclose(-np.asarray(energy), lp)


@IN_PYRO
def test_what_has_no_predictions_is_compared_without(host):
    objective = host.package.DeterministicELBO(sample_sites=["weight"])
    found = compared(host, of_two(host), steps=5, objective=objective)
    assert not found.predictive
    assert found.sites
    assert any(note.startswith("no predictions: site 'obs'") for note in found.notes)
