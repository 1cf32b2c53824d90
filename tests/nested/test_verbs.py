"""Verbs of fits that take what ``nested`` returned."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from moment_calculus.numerics.pareto import smooth_weights
from moment_inference.criticism.diagnosis.nested import check_centre
from moment_inference.nested.grid import explore
from moment_inference.nested.storing import _packed, _unpacked
from moment_inference.optimisation.storage.files import pack, unpack
from tests.checks.marks import IN_PYRO
from tests.fitting.models import fresh
from tests.nested.test_nested import intercepts, schools

CENTRE = "k̂ of the Gaussian at the centre"


@pytest.fixture(scope="module", params=["numpyro", "pyro"])
def host(request):
    """A host without parameters of an earlier test."""
    return fresh(request.param)


@pytest.fixture(scope="module")
def example(host):
    """A model, its data and their posterior."""
    model, *data = schools(host, is_centred=True)
    return model, data, host.package.nested(model, *data)


def test_comparison_with_draws_of_its_own(host, example):
    """Moments of the marginals differ from those of draws by Monte Carlo errors."""
    model, data, posterior = example
    options = {"num_samples": 1000, "num_prior_samples": 0}
    draws = host.package.to_inference_data(model, posterior, *data, **options)
    found = host.package.compare_with_nuts(model, posterior, *data, reference=draws)
    assert {site.name for site in found.sites} == {"effect", "mean", "spread"}
    for site in found.sites:
        assert (np.abs(site.difference) < 4.5 * site.error).all()
        assert site.ratios["Nested"] == pytest.approx(1.0, abs=0.1)
    assert [part.source for part in found.predictive] == ["Nested"]
    assert not any("linear response" in note for note in found.notes)


def test_diagnosis_of_an_exact_posterior(host, example):
    """Given the spread the field is Gaussian: the weights at the centre are constant."""
    model, data, posterior = example
    found = host.package.diagnose(model, posterior, *data, num_samples=200, verbose=False)
    assert found[CENTRE].value == "0.00, 100% effective"
    assert f"{posterior.log_evidence:.3f}" in found["evidence"].value
    assert {found[name].verdict.value for name in ("correction", "grid", CENTRE)} == {"good"}
    assert found.is_good


@IN_PYRO
def test_few_counts_are_nearly_gaussian(host):
    """Their field has constant weights but for a tenth, and they contradict no prior."""
    model, y = intercepts(host)
    posterior = host.package.nested(model, y)
    found = host.package.diagnose(model, posterior, y, num_samples=1000, verbose=False)
    assert float(found[CENTRE].value.split(", ")[1].split("%")[0]) > 85
    assert found["prior"].verdict.value == "good"


def test_weights_with_a_tail_are_doubtful():
    draws = np.random.default_rng(0).pareto(1.2, size=1000)
    weights = smooth_weights(np.log1p(draws))
    found = check_centre(SimpleNamespace(weights_at_centre=lambda: weights))
    assert found.verdict.value == "doubtful"
    assert "> 0.67" in found.meaning
    assert found.remedy == "compare_with_nuts"


def test_refused_verbs(host, example):
    model, data, posterior = example
    with pytest.raises(TypeError, match="what nested returned, and linear_response takes"):
        host.package.linear_response(model, posterior, *data)
    objective = host.package.DeterministicELBO()
    with pytest.raises(ValueError, match="nested inference has none"):
        host.package.diagnose(model, posterior, *data, objective=objective)


def smooth(host):
    """A line with a random slope per group, and what it is at any input."""
    dist, sample = host.dist, host.language.sample

    def model(x, y=None):
        spread = sample("spread", dist.HalfNormal(1.0))
        weights = sample("weights", dist.Normal(0.0, spread).expand([3]).to_event(1))
        line = host.language.deterministic("line", x @ weights)
        with host.language.plate("rows", len(x)):
            sample("y", dist.Normal(line, 0.5), obs=y)

    x = np.random.default_rng(0).normal(size=(20, 3))
    return model, x, x @ [0.5, -1.0, 0.2]


def test_predictions_are_mixtures_over_draws(host):
    """Of all coordinates together: at new rows, with means that the weights' have."""
    model, x, y = smooth(host)
    posterior = host.package.nested(model, x, y)
    found = host.package.predict(model, posterior, x[:4] + 1.0, num_particles=400)
    weights = posterior.marginal("weights")
    expected = (x[:4] + 1.0) @ weights.mean
    error = 4.5 * np.sqrt(np.asarray(found["line"].variance) / 400)
    assert isinstance(found["y"], host.package.SampledPrediction)
    assert (np.abs(np.asarray(found["y"].mean) - expected) < error).all()
    assert np.asarray(found["y"].aleatoric_variance) == pytest.approx(np.full(4, 0.25))
    assert np.asarray(found["line"].mean) == pytest.approx(np.asarray(found["y"].mean))


@IN_PYRO
def test_options_of_guides_are_refused(host, example):
    model, data, posterior = example
    with pytest.raises(ValueError, match="rules=: predictions of what nested returned"):
        host.package.predict(model, posterior, *data, rules="dvi")


@IN_PYRO
def test_plots(host, example):
    """Densities of marginals and priors integrate to one, where chains and priors are known."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    *_, posterior = example
    draws = posterior.sample(200)
    axes = posterior.plot(nuts=draws)
    assert [axis.get_title() for axis in axes] == ["spread", "mean"]
    priors = (lambda x: 2 * norm.pdf(x)), norm(0, 2).pdf
    for axis, density_of_prior in zip(axes, priors, strict=True):
        found, prior = axis.get_lines()
        x, density = found.get_data()
        assert np.trapezoid(density, x) == pytest.approx(1.0, abs=0.01)
        assert prior.get_ydata() == pytest.approx(density_of_prior(x))
        assert len(axis.patches) == 1
    effects = posterior.plot(["effect"])
    assert len(effects) == 8
    assert [len(axis.get_lines()) for axis in effects] == [1] * 8
    with pytest.raises(TypeError, match="nuts is a finished MCMC"):
        posterior.plot(nuts=[1.0])
    matplotlib.pyplot.close("all")


@IN_PYRO
def test_priors_that_depend_on_others_are_not_shown(host):
    pytest.importorskip("matplotlib").use("agg")
    sample, dist = host.language.sample, host.dist

    def model(y):
        spread = sample("spread", dist.HalfNormal(1.0))
        level = sample("level", dist.Normal(0.0, spread))
        sample("y", dist.Normal(level, 1.0).expand([2]).to_event(1), obs=y)

    axes = host.package.nested(model, host.array([1.0, 2.0])).plot()
    assert [axis.get_title() for axis in axes] == ["spread", "level"]
    assert [len(axis.get_lines()) for axis in axes] == [2, 1]


def test_files(host, example, tmp_path):
    """Hold all that marginals, draws and evidence need, and are read for the same data alone."""
    model, data, posterior = example
    path = tmp_path / "schools.safetensors"
    posterior.save(path)
    loaded = host.package.Nested.load(path, model, *data)
    assert loaded.summary() == posterior.summary()
    draws, again = (
        each.plain_draws(np.random.default_rng(0), 5)["effect"] for each in (posterior, loaded)
    )
    np.testing.assert_array_equal(draws, again)
    errors, y = data
    with pytest.raises(host.package.StoredFileError, match="is of other data"):
        host.package.Nested.load(path, model, errors, y + 1)
    with pytest.raises(host.package.StoredFileError, match="holds the parameters of a Nested"):
        host.package.load(path, model, host.package.DVIGuide(), *data)


@pytest.mark.parametrize("count", [0, 1, 2, 4], ids=["point", "line", "lattice", "composite"])
def test_grids_of_every_design_are_stored(count):
    grid = explore(lambda points: -0.5 * (points**2).sum(1), np.zeros(count))
    tree, arrays = pack(_packed(grid), lambda part: part)
    again = _unpacked(unpack(tree, arrays))
    np.testing.assert_array_equal(again.weights, grid.weights)
    assert again.log_evidence == grid.log_evidence
    assert type(again.design) is type(grid.design)
