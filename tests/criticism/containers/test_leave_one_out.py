"""Leave-one-out by draws of approximations, against closed forms and ArviZ."""

import warnings

import arviz as az
import numpy as np
import pytest
import xarray
from scipy import stats

from moment_inference.criticism import draws as draws_module
from moment_inference.criticism.arviz_access import Scores, is_line_0, leave_one_out, loo_weights
from moment_inference.criticism.comparison.differences import LooComparison
from tests.checks.marks import IN_PYRO
from tests.criticism.containers.arviz_lines import arviz_loo
from tests.criticism.containers.arviz_lines import container as made_of
from tests.criticism.containers.programs import (
    X,
    Y,
    convert,
    drawing,
    gaussian,
    left_out,
    line,
    options_of,
    scaled,
)

DRAWS = 4000


def container(host, covariance, count=DRAWS):
    """Draws of a Gaussian about the exact posterior's mean."""
    guide = drawing(host, gaussian(X, Y)[0], covariance)
    options = {"num_samples": count, "num_prior_samples": 0}
    return convert(host, guide, line(host), X, Y, **options)


def standard_error(data, rows):
    """Of the sum over some data, from the weights of the draws, by the delta method."""
    weights = np.exp(loo_weights(data).values.reshape(len(rows), -1)[rows])
    densities = np.exp(data.log_likelihood["obs"].values.reshape(-1, len(rows)).T[rows])
    means = (weights * densities).sum(-1, keepdims=True)
    return np.sqrt(((weights * (densities / means - 1)).sum(0) ** 2).sum())


def check_close(found, data):
    """What is known of the data whose weights can be trusted."""
    exact, rows = left_out(X, Y), found["pareto_k"].values < 0.7
    error = standard_error(data, rows)
    assert rows.sum() >= 18
    assert abs((found["elpd_i"].values - exact)[rows].sum()) < 3 * error < 0.3
    np.testing.assert_allclose(found["se"], np.sqrt(len(exact) * exact.var()), rtol=0.1)
    assert found["elpd_i"].dims == ("data",)


@IN_PYRO
def test_draws_of_the_posterior_itself_have_the_exact_answer(host):
    data = container(host, gaussian(X, Y)[1])
    found = host.package.loo(data)
    ratios = data.sample_stats["lp"] - data.sample_stats["log_q"]
    assert float(ratios.max() - ratios.min()) < 1e-10
    assert found.pareto_k_joint == 0
    check_close(found, data)
    check_close(arviz_loo(data), data)


@IN_PYRO
def test_a_mean_field_guide_is_corrected(host):
    precision = np.linalg.inv(gaussian(X, Y)[1])
    data = container(host, np.diag(1 / np.diag(precision)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of single data
        found = host.package.loo(data)
    assert 0 != found.pareto_k_joint < 0.7
    check_close(found, data)


@IN_PYRO
def test_what_arviz_alone_leaves_out(host):
    data = container(host, gaussian(X, Y)[1] / 4)
    with pytest.warns(UserWarning, match="approximation as a whole"):
        corrected = host.package.loo(data)
    alone = arviz_loo(data)
    exact = left_out(X, Y).sum()
    assert abs(corrected.elpd - exact) < abs(alone["elpd"] - exact)


def test_a_guide_is_converted_on_the_way(host):
    guide, model = drawing(host, *gaussian(X, Y)), line(host)
    arrays = map(host.array, (X, Y))
    options = {"num_samples": 200, **options_of(host, guide)}
    found = host.package.loo(model, guide, *arrays, scale="deviance", **options)
    assert found.scale == "deviance"
    assert found.n_samples == 200
    assert abs(found.elpd_loo + 2 * left_out(X, Y).sum()) < 4
    with pytest.raises(TypeError, match="a model, its posterior and the data"):
        host.package.loo(guide)


def pit(data, loo):
    """ArviZ's probability integral transforms by our weights."""
    weights = loo_weights(data)
    if is_line_0():
        return az.loo_pit(data, y="obs", log_weights=weights)
    shapes = loo.pareto_k.rename("obs").to_dataset()
    return az.loo_pit(data, log_weights=weights.to_dataset(), pareto_k=shapes)["obs"].values


@IN_PYRO
def test_comparisons_and_plots_take_it(host):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the narrow one, and ArviZ's own
        good, narrow = (container(host, gaussian(X, Y)[1] / part, 200) for part in (1, 4))
        found = {name: host.package.loo(data) for name, data in (("a", good), ("b", narrow))}
        table = az.compare(found)
        values = pit(good, found["a"])
        (az.plot_ppc if is_line_0() else az.plot_ppc_dist)(good)
        az.plot_forest(good, var_names=["weight"])
        az.plot_khat(found["a"])
        summary = az.summary(good, var_names=["weight"])
    assert set(table.index) == {"a", "b"}
    assert ((values >= 0) & (values <= 1)).all()
    assert values.shape == Y.shape
    mean, covariance = gaussian(X, Y)
    error = np.sqrt(np.diag(covariance) / 200)
    assert (abs(summary["mean"] - mean) < 5 * error + 1e-3).all()  # the table is rounded
    import matplotlib.pyplot as plt

    plt.close("all")


@IN_PYRO
def test_draws_without_a_density_are_refused(host):
    arrays = host.array(X), host.array(Y)
    for guide, said in (
        (host.package.MCDropoutGuide(), "has no density"),
        (host.autoguide.AutoDelta(scaled(host)), "point estimate"),
    ):
        fit = host.package.fit(scaled(host), guide, *arrays, method="adam", steps=2)
        data = host.package.to_inference_data(
            fit, scaled(host), *arrays, num_samples=20, num_prior_samples=0
        )
        assert "log_q" not in data.sample_stats
        with pytest.raises(ValueError, match=said):
            host.package.loo(data)


def made(log_p, log_likelihood):
    """A container of numbers alone."""
    return made_of(
        {
            "posterior": {"a": np.zeros_like(log_p)},
            "log_likelihood": log_likelihood,
            "sample_stats": {"lp": log_p, "log_q": np.zeros_like(log_p)},
        }
    )


def test_one_site_is_asked_for():
    likelihood = np.random.default_rng(0).normal(size=(1, 100, 4))
    data = made(np.zeros((1, 100)), {"y": likelihood, "z": 2 * likelihood})
    with pytest.raises(ValueError, match=r"site=\.\.\.: 'y', 'z'"):
        leave_one_out(data)
    with pytest.raises(ValueError, match="'x' is no observed site"):
        leave_one_out(data, "x")
    assert leave_one_out(data, "y").elpd_loo != leave_one_out(data, "z").elpd_loo


def test_constant_weights_are_those_of_arviz(monkeypatch):
    monkeypatch.setattr(draws_module, "ROWS", 7)  # of 20 data
    draws = (2, 450)  # 90 of them in the tail, without rounding
    likelihood = np.random.default_rng(0).normal(size=(*draws, 20))
    data = made(np.full(draws, 3.0), {"y": likelihood})
    found, reference = leave_one_out(data), arviz_loo(data, reff=1.0)
    assert found.pareto_k_joint == 0
    xarray.testing.assert_allclose(found.elpd_i, reference["elpd_i"].rename("loo_i"))
    np.testing.assert_allclose(found.p, reference["p"])
    np.testing.assert_allclose(found.se, reference["se"])


def test_it_prints_as_that_of_arviz():
    likelihood = np.random.default_rng(0).normal(size=(1, 900, 20))
    data = made(np.zeros((1, 900)), {"y": likelihood})
    assert str(leave_one_out(data)) == str(az.loo(data, pointwise=True, reff=1.0))


def test_poor_weights_of_many_latent_sites_do_not_make_data_bad():
    generator, size = np.random.default_rng(0), 600
    y, spread = 3**0.5 * generator.normal(size=size), (2 / 3) ** 0.5
    at, right, ours = y / 3, stats.norm(0, spread), stats.norm(0, 0.95 * spread)
    apart = ours.rvs(size=(1, 4000, size), random_state=generator)
    densities = {"lp": right.logpdf(apart).sum(-1), "log_q": ours.logpdf(apart).sum(-1)}
    likelihood = {"y": stats.norm.logpdf(y, at + apart, 2**0.5)}
    data = made_of(
        {"posterior": {"x": at + apart}, "log_likelihood": likelihood, "sample_stats": densities}
    )
    with pytest.warns(UserWarning, match="as a whole cannot be trusted.*nothing of single data"):
        weighted = leave_one_out(data)
    plain = leave_one_out(data, importance_weights=False)
    exact = stats.norm(0, 3**0.5).logpdf(y)
    assert weighted.effective_joint < 0.1
    assert plain.is_bad.values.mean() < 0.02
    # what draws that are 5 % too narrow tell: −log E 1 / N(y | x, 2) of a Gaussian x
    left = 1 - ours.var() / 2
    known = 0.5 * np.log(left / (4 * np.pi)) - (2 * y / 3) ** 2 / 4 / left
    assert abs(plain.loo_i.values - known).mean() < 4000**-0.5  # E |error| of 4000 draws is less
    assert abs(known - exact).mean() < 0.06


def test_draws_of_which_no_weights_can_be_made():
    likelihood = np.random.default_rng(0).normal(size=(1, 50, 4))
    with pytest.raises(ValueError, match="importance weights: they take 11"):
        leave_one_out(made(np.zeros((1, 5)), {"y": likelihood[:, :5]}))
    with pytest.raises(ValueError, match="not finite"):
        leave_one_out(made(np.full((1, 50), -np.inf), {"y": likelihood}))


def test_comparisons_count_the_data_that_diagnoses_call_bad():
    """With weights that are all but constant, none is bad, however heavy their tail."""
    generator = np.random.default_rng(0)
    tail = 0.02 * generator.standard_t(1.2, size=(1, 4000, 3)).clip(-50, 50)
    data = made(np.zeros((1, 4000)), {"y": tail})
    scores = Scores.of(leave_one_out(data))
    assert scores.shapes.max() > 0.75
    assert LooComparison.of("y", "guide", scores, scores).bad == scores.is_bad.sum() == 0
