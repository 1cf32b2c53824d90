"""Finished chains of both hosts as containers."""

import jax
import numpy as np
import numpyro
import pyro
import pytest

from moment_calculus.errors import UnsupportedMoments
from moment_inference.criticism.draws import Draws, resample
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.arviz_lines import arviz_loo, container
from tests.criticism.containers.programs import (
    X,
    Y,
    convert,
    drawing,
    gaussian,
    left_out,
    line,
    scaled,
    seeded,
)


def chains(host, model, draws, **options):
    """Chains that were not run yet."""
    if host.name == "pyro":
        kernel = pyro.infer.NUTS(model, **options)
        return pyro.infer.MCMC(kernel, draws, warmup_steps=30, disable_progbar=True)
    kernel = numpyro.infer.NUTS(model, **options)
    return numpyro.infer.MCMC(kernel, num_warmup=30, num_samples=draws, progress_bar=False)


def run(host, found, *data):
    arrays = [host.array(part) for part in data]
    found.run(*([jax.random.key(0)] if host.name == "numpyro" else []), *arrays)
    return found


def halved(data):
    """The same draws as two chains, which are less effective than independent ones."""
    groups = {
        name: {key: data[name][key].values for key in data[name]}
        for name in ("posterior", "log_likelihood")
    }
    return container(
        {
            name: {key: part.reshape(2, 60, *part.shape[2:]) for key, part in group.items()}
            for name, group in groups.items()
        }
    )


def test_leave_one_out_is_that_of_arviz(host):
    found = run(host, chains(host, line(host), 120), X, Y)
    with pytest.raises(ValueError, match="there are no draws of 'scale'"):
        convert(host, found, scaled(host), X, Y)
    data = convert(host, found, line(host), X, Y)
    loo = host.package.loo(data)
    assert data.posterior["weight"].shape == (1, 120, 3)
    assert data.posterior["mean"].dims == ("chain", "draw", "data")
    assert data.posterior.attrs["source"] == "NUTS"
    assert "log_q" not in data.sample_stats
    assert data.sample_stats["diverging"].dtype == bool
    assert data.sample_stats["lp"].dtype == np.float64
    for chains_of_data in (data, halved(data)):
        found, reference = host.package.loo(chains_of_data), arviz_loo(chains_of_data)
        for entry in ("elpd", "se", "p", "elpd_i", "pareto_k", "good_k", "warning"):
            np.testing.assert_allclose(found[entry], reference[entry], rtol=1e-9)
    assert abs(loo.elpd_loo - left_out(X, Y).sum()) < 2


@IN_PYRO
def test_divergences(host):
    """A step that is far too long makes them."""
    options = {"step_size": 200.0, "adapt_step_size": False}
    found = run(host, chains(host, scaled(host), 20, **options), X, Y)
    data = convert(host, found, scaled(host), X, Y, num_prior_samples=0)
    told = data.sample_stats["diverging"]
    assert told.shape == (1, 20)
    assert told.dtype == bool
    assert told.any()
    known = found.diagnostics()["divergences"]["chain 0"]
    assert [*np.flatnonzero(told.values[0])] == known


@IN_PYRO
def test_few_draws_and_none(host):
    found = run(host, chains(host, line(host), 2), X, Y)
    assert convert(host, found, line(host), X, Y).posterior["weight"].shape == (1, 2, 3)
    with pytest.raises(ValueError, match=r"call its run\(\.\.\.\) first"):
        convert(host, chains(host, line(host), 5), line(host), X, Y)


@IN_PYRO
def test_draws_of_a_guide_become_those_of_the_posterior(host):
    mean, covariance = gaussian(X, Y)
    guide = drawing(host, mean, 1.5 * covariance)
    options = {"num_samples": 4000, "num_prior_samples": 0, "importance_weights": True}
    found, again = (
        convert(host, guide, line(host), X, Y, **options, **seeded(host, 3)) for _ in range(2)
    )
    np.testing.assert_array_equal(again.posterior["weight"], found.posterior["weight"])
    weight = found.posterior["weight"].values.reshape(-1, 3)
    np.testing.assert_allclose(np.cov(weight.T), covariance, atol=0.12 * covariance.max())
    assert "resampled" in found.posterior.attrs["source"]


@IN_PYRO
def test_draws_that_weights_cannot_correct_are_refused(host):
    mean, covariance = gaussian(X, Y)
    guide = drawing(host, mean, covariance / 25)
    with pytest.raises(UnsupportedMoments, match="cannot be trusted: their k̂ is"):
        convert(host, guide, line(host), X, Y, importance_weights=True)


def test_what_has_no_weights_is_refused():
    values = {"x": np.zeros((1, 20))}
    arguments = (lambda _: np.zeros(20), np.random.default_rng(0), 5)
    with pytest.raises(ValueError, match="are of the posterior itself"):
        resample(Draws("NUTS", values), *arguments)
    with pytest.raises(ValueError, match="could be made of: of masks"):
        resample(Draws("guide", values, without_density="of masks"), *arguments)


@IN_PYRO
def test_leave_one_out_without_weights_takes_draws_as_the_posteriors(host):
    mean, covariance = gaussian(X, Y)
    guide = drawing(host, mean, covariance / 2)
    data = convert(host, guide, line(host), X, Y, num_samples=2500)  # 150 of them in the tail
    with pytest.warns(UserWarning, match="Pareto shapes|as a whole"):
        weighted = host.package.loo(data)
    plain = host.package.loo(data, importance_weights=False)
    reference = arviz_loo(data, reff=1.0)
    np.testing.assert_allclose(plain.elpd_i, reference["elpd_i"], rtol=1e-9)
    assert weighted.importance_weights
    assert not plain.importance_weights
    assert plain.pareto_k_joint == 0
    assert weighted.effective_joint < 0.9
    assert plain.effective_joint == pytest.approx(1)
