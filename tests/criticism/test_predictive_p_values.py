"""Predictive p-values of test statistics, against exact ones and by hand."""

import numpy as np
import pytest
import scipy.stats

from moment_inference.criticism.arviz_access import dataset, inference_data
from pyro_moments import predictive_p_values
from tests.criticism.containers.arviz_lines import container

DRAWS = np.random.default_rng(0).normal(size=(2, 2000, 20))
STATISTICS = {"mean": np.mean, "largest": np.max}


def data(observed, *, group="posterior_predictive", draws=DRAWS):
    groups = {group: {"obs": draws}, "observed_data": {"obs": np.asarray(observed)}}
    return container(groups)


@pytest.mark.parametrize("group", ["posterior_predictive", "prior_predictive"])
def test_against_exact_probabilities(group):
    observed = np.full(20, 0.2)
    observed[3] = 2.5
    found = predictive_p_values(data(observed, group=group), STATISTICS, group)
    assert list(found.index) == [("obs", "mean"), ("obs", "largest")]
    assert list(found.index.names) == ["site", "statistic"]
    exact = {
        "mean": scipy.stats.norm(0, 20**-0.5).sf(observed.mean()),
        "largest": 1 - scipy.stats.norm.cdf(2.5) ** 20,
    }
    for name, expected in exact.items():
        row = found.loc[("obs", name)]
        assert abs(row.p_value - expected) < 4 * row.p_value_mcse
        ideal = np.sqrt(expected * (1 - expected) / 4000)
        assert row.p_value_mcse == pytest.approx(ideal, rel=0.3)
        values = STATISTICS[name](DRAWS, axis=-1)
        assert row.replicated_mean == pytest.approx(values.mean())
        assert row.replicated_sd == pytest.approx(values.std(ddof=1))
        assert row.observed == STATISTICS[name](observed)


def test_ties_count_by_half():
    counts = np.zeros((1, 8, 3), int)
    counts[0, :2] = 1
    found = predictive_p_values(data(np.zeros(3, int), draws=counts), {"sum": np.sum})
    assert found.p_value.item() == (2 + 6 / 2) / 8


def test_autocorrelated_draws_count_less():
    noise, chain = np.random.default_rng(1).normal(size=2000), np.zeros(2000)
    for i in range(1, 2000):
        chain[i] = 0.95 * chain[i - 1] + noise[i]
    errors = [
        predictive_p_values(data([0.0], draws=part[None, :, None]), {"y": np.max}).p_value_mcse
        for part in (chain, noise)
    ]
    assert errors[0].item() > 3 * errors[1].item()


def test_few_draws_that_agree_are_not_certain():
    found = predictive_p_values(data(np.full(20, 9.0), draws=DRAWS[:, :5]), STATISTICS)
    assert (found.p_value == 0).all()
    assert (found.p_value_mcse > 0.03).all()


def test_every_observed_site_has_rows_and_others_none():
    replications = {"a": DRAWS, "b": DRAWS[..., 0], "latent": DRAWS}
    observed = {"a": DRAWS[0, 0], "b": np.array(0.0)}
    given = container({"posterior_predictive": replications, "observed_data": observed})
    found = predictive_p_values(given, {"mean": np.mean})
    assert list(found.index) == [("a", "mean"), ("b", "mean")]
    below = (DRAWS[..., 0] >= 0).mean()
    assert found.p_value.loc[("b", "mean")] == pytest.approx(below)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (data(np.zeros(20)), {"group": "prior_predictive"}, "no group 'prior_predictive'"),
        (data(np.zeros(19)), {}, r"shape \(20,\), the observations \(19,\)"),
        (data(np.full(20, np.nan)), {}, "20 of 20 observations are NaN"),
        (data(np.zeros(20)), {"statistics": {"sort": np.sort}}, "one finite number"),
        (data(np.zeros(20)), {"statistics": {"log": lambda y: np.nan}}, "'log'.*one finite"),
        (data(np.zeros(20)), {"statistics": {}}, "no statistics"),
        (
            container(
                {"posterior_predictive": {"z": DRAWS}, "observed_data": {"obs": np.zeros(20)}}
            ),
            {},
            "no replications of obs in 'posterior_predictive', which has z",
        ),
        (
            inference_data(
                {
                    "posterior_predictive": dataset({"obs": DRAWS}, {}, {}, {}, has_draws=False),
                    "observed_data": dataset({"obs": np.zeros(20)}, {}, {}, {}, has_draws=False),
                }
            ),
            {},
            "no axis chain and draw",
        ),
    ],
)
def test_what_cannot_be_checked_is_refused(given, options, said):
    with pytest.raises(ValueError, match=said):
        predictive_p_values(given, **({"statistics": STATISTICS} | options))
