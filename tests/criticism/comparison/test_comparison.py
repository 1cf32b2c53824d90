"""Comparisons with chains, of which some are exact draws of a known posterior.

The mathematics is of both frameworks; NumPyro's comparison runs in ``test_other_programs``.
"""

import numpy as np
import pytest

from tests.criticism.comparison.references import chains, improper, noisy, softplus
from tests.criticism.containers.arviz_lines import container
from tests.criticism.containers.programs import (
    NOISE,
    ROWS,
    doubles,
    fresh,
    gaussian,
    left_out,
    line,
)

generator = np.random.default_rng(5)
X = 1.0 + generator.normal(size=(ROWS, 1)) + 0.5 * generator.normal(size=(ROWS, 3))
Y = X @ [1.0, -2.0, 0.5] + NOISE * generator.normal(size=ROWS)
NEW = np.array([[1.0, 0.0, 2.0], [0.3, -1.0, 0.5]])
MEAN, COVARIANCE = gaussian(X, Y)


def exact_draws(chains=4, draws=2000):
    found = np.random.default_rng(1).multivariate_normal(MEAN, COVARIANCE, (chains, draws))
    return {"weight": found}


def trained(host, model, *data, **options):
    options = {"method": "newton", "float64": True, "by_draws": False, **options}
    return host.package.fit(model, host.package.DVIGuide(), *data, **options)


def compared(host, model=None, samples=None, diverging=None, **options):
    with doubles(host):
        model = model or line(host)
        data = host.array(X), host.array(Y)
        reference = chains(samples or exact_draws(), diverging)
        result = trained(host, model, *data)
        return host.package.compare_with_nuts(model, result, *data, reference=reference, **options)


@pytest.fixture
def host():
    host = fresh("pyro")
    with doubles(host):
        yield host


@pytest.fixture(scope="module")
def comparison():
    return compared(fresh("pyro"))


def test_sites_are_those_of_the_posterior(comparison):
    (site,) = comparison.sites
    draws = exact_draws()["weight"].reshape(-1, 3)
    scale = draws.std(0, ddof=1)
    np.testing.assert_allclose(site.difference, (MEAN - draws.mean(0)) / scale, atol=1e-6)
    mean_field = 1 / np.sqrt(np.diag(np.linalg.inv(COVARIANCE)))
    np.testing.assert_allclose(site.ratios["DVIGuide"], mean_field / scale, rtol=1e-6)
    corrected = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_allclose(site.ratios["linear response"], corrected / scale, rtol=1e-6)
    np.testing.assert_allclose(site.error, len(draws) ** -0.5, rtol=0.1)


def test_predictions_are_those_of_the_posterior(comparison):
    guide, response = comparison.predictive
    assert (guide.source, response.source) == ("DVIGuide", "linear response")
    draws = exact_draws()["weight"].reshape(-1, 3)
    means = draws @ X.T
    variance = means.var(0) + NOISE**2
    np.testing.assert_allclose(
        response.difference, (X @ MEAN - means.mean(0)) / variance**0.5, atol=1e-6
    )
    exact = np.einsum("ni,ij,nj->n", X, COVARIANCE, X) + NOISE**2
    np.testing.assert_allclose(response.variance_ratio, exact / variance, rtol=1e-6)
    assert response.error == pytest.approx(
        np.sqrt((means.var(0) / variance).mean() / len(draws)), rel=0.1
    )
    assert response.distance.mean() < 1.5 * response.noise


def test_distances_are_those_of_two_normals(host):
    """With a reference that is off by a known amount."""
    shifted = {"weight": exact_draws()["weight"] + [0.0, 0.0, 1.0]}
    _, response = compared(host, samples=shifted, test=(host.array(NEW),)).predictive
    variance = np.einsum("ni,ij,nj->n", NEW, COVARIANCE, NEW) + NOISE**2
    np.testing.assert_allclose(response.difference, -NEW[:, 2] / variance**0.5, atol=0.05)
    # of equal variances the Wasserstein distance is that of the means; four standard errors
    expected = np.abs(NEW[:, 2]) / variance**0.5
    np.testing.assert_allclose(response.distance, expected, atol=4 * (2 / 1000) ** 0.5)


def test_leave_one_out_is_exact_by_linear_response(comparison):
    _, response = comparison.loo
    exact = left_out(X, Y).sum()
    assert response.elpd == pytest.approx(exact, abs=0.3)  # of 1000 draws
    assert response.chains == pytest.approx(exact, abs=0.1)
    assert response.joint_shape < 0.3
    assert abs(response.difference) < 4 * response.error + 0.05


def test_it_prints_and_draws(comparison):
    text = str(comparison)
    for part in ("4 × 2000 draws", "weight", "linear response", "leave one out", "NUTS not known"):
        assert part in text
    assert comparison.table().shape == (3, 4)
    axes = comparison.plot()
    assert [part.get_title() for part in axes] == [
        "Posterior means",
        "Posterior standard deviations",
        "Predictions",
    ]
    assert set(comparison.inference_data) == {"DVIGuide", "linear response", "NUTS"}


def test_chains_that_are_no_reference_are_told(host):
    samples = exact_draws(chains=2, draws=50)
    samples["weight"][1] += 3.0
    diverging = np.zeros((2, 50), bool)
    diverging[0, 3] = True
    found = compared(host, samples=samples, diverging=diverging)
    assert found.chains.divergences == 1
    text = " ".join(found.chains.warnings)
    for part in ("1 transitions diverged", "have not mixed", "effective draws"):
        assert part in text


def test_chains_may_be_in_a_container(comparison, host):
    contained = comparison.inference_data["NUTS"]
    data = host.array(X), host.array(Y)
    result = trained(host, line(host), *data)
    found = host.package.compare_with_nuts(line(host), result, *data, reference=contained)
    other = container({"posterior": {"other": contained.posterior["weight"].values}})
    with pytest.raises(ValueError, match="no draws of 'weight'; its posterior has 'other'"):
        host.package.compare_with_nuts(line(host), result, *data, reference=other)
    np.testing.assert_allclose(found.sites[0].difference, comparison.sites[0].difference, atol=1e-6)
    assert found.chains.divergences == 0


def test_a_single_chain_is_compared_with_itself(host):
    samples = exact_draws(chains=1, draws=400)
    samples["weight"][:, 200:] += 3.0
    assert compared(host, samples=samples).chains.rhat > 1.5


def test_what_is_not_possible_is_noted(host):
    """An untrained guide has no linear response; improper priors are named."""
    data = host.array(X), host.array(Y)
    model = improper(host)
    result = trained(host, model, *data, steps=1)
    reference = chains(exact_draws())
    found = host.package.compare_with_nuts(model, result, *data, reference=reference)
    notes = " ".join(found.notes)
    assert "no linear response" in notes
    assert "priors of 'weight' are improper" in notes
    assert list(found.sites[0].ratios) == ["DVIGuide"]


def test_wrong_references_are_refused(host):
    data = host.array(X), host.array(Y)
    result = trained(host, line(host), *data)
    with pytest.raises(TypeError, match="reference is a finished MCMC"):
        host.package.compare_with_nuts(line(host), result, *data, reference=exact_draws())
    with pytest.raises(TypeError, match=r"test=\(x,\)"):
        compared(host, test=NEW)


def test_a_random_density_is_refused(host):
    model = noisy(host)
    data = host.array(X), host.array(Y)
    guide = host.package.DVIGuide()
    elbo = host.package.DeterministicELBO(propagation="sampled")
    result = host.package.fit(model, guide, *data, objective=elbo, method="adam", steps=2)
    with pytest.raises(ValueError, match="log density at one draw differ"):
        host.package.compare_with_nuts(model, result, *data)


def test_moments_of_other_coordinates_are_those_of_draws(host):
    """A guide that is Gaussian on no coordinates that the chains have."""
    model, guide = softplus(host, 0.5, 0.3)
    normal = np.random.default_rng(1).normal(0.5, 0.3, size=(2, 1000))
    reference = chains({"scale": np.logaddexp(0, normal)})
    data = host.array(X), host.array(Y)
    found = host.package.compare_with_nuts(model, guide, *data, reference=reference)
    (site,) = found.sites
    assert np.abs(site.difference) < 5 * site.error
    assert site.ratios["function"] == pytest.approx(1, abs=0.1)
    assert "moments of function are those of 10000 draws" in " ".join(found.notes)


def test_particles_are_drawn_along_plates(host):
    """Where an observation depends on its row in nothing but the plate."""
    model, _ = softplus(host, 0.5, 0.3)
    x = host.array(X)
    result = trained(host, model, x, host.array(Y), float64=False)
    options = {"propagation": "sampled", "num_particles": 7}
    found = host.package.predict(model, result.guide, x, **options)["obs"]
    draws = np.asarray(found.sample(500))
    assert draws.shape == (500, ROWS)
    np.testing.assert_allclose(draws.std(), np.sqrt(np.asarray(found.variance)[0]), rtol=0.05)
