"""Posteriors of guide sites, and what sites contribute to the ELBO."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import AffineTransform, ExpTransform, SigmoidTransform

from moment_calculus.values.propagation import Propagation
from numpyro_moments import UnsupportedMoments
from numpyro_moments.sites.terms import POSTERIORS, auxiliary_term, latent_term, posterior_value
from tests.checks.jaxprs import by_numpy
from tests.numpyro.likelihoods.cases import MEAN, VARIANCE, distribution, latent
from tests.numpyro.one_program import evaluated
from tests.oracles import quadrature as oracles

SCALE = np.sqrt(VARIANCE)
FULL, DIAGONAL = Propagation(), Propagation(covariance="diagonal")
TRIL = np.array([[0.5, 0.0, 0.0], [0.3, 0.4, 0.0], [-0.2, 0.1, 0.6]])


entropy, latent_term = POSTERIORS.entropy, partial(latent_term, sites={})
pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def close(actual, expected, rtol=1e-7, atol=1e-10):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def points(mean=MEAN, scale=SCALE):
    z, weights = oracles.narrow_grid(1, 1)
    return mean + scale * z, weights


def site(fn, value, scale=None):
    return {"name": "x", "fn": fn, "value": value, "scale": scale}


def guide_site(fn, scale=None, propagation=FULL):
    return site(fn, posterior_value("x", fn, propagation), scale)


# ---------------------------------------------------------------------------------------------
# Posteriors

TRANSFORMED = {
    "LogNormal": dist.LogNormal(MEAN, SCALE),
    "sigmoid": dist.TransformedDistribution(dist.Normal(MEAN, SCALE), SigmoidTransform()),
    "sigmoid of events": dist.TransformedDistribution(
        dist.Normal(MEAN, SCALE).to_event(1),
        dist.biject_to(dist.constraints.independent(dist.constraints.interval(0.5, 2.0), 1)),
    ),
    "affine": dist.TransformedDistribution(
        dist.Normal(MEAN, SCALE), [AffineTransform(np.array([1.0, -2.0, 0.5]), 3.0)]
    ),
    "affine between": dist.TransformedDistribution(
        dist.Normal(MEAN, SCALE),
        [ExpTransform(), AffineTransform(1.0, np.array([0.1, 0.3, 0.2])), SigmoidTransform()],
    ),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_normals(name):
    fn = TRANSFORMED[name]
    sites = []

    @by_numpy
    def both():
        value = posterior_value("x", fn, FULL).gaussian()
        sites.append(value.sites)
        z, weights = points()
        for transform in fn.transforms:
            z = transform(z)
        mean = weights @ z
        exact = mean, weights @ (z - mean) ** 2, -(weights @ fn.log_prob(z))
        return (value.mean, value.variance, entropy(value, fn)), exact

    (mean, variance, entropy_of_value), exact = both()
    close(mean, exact[0], rtol=1e-5)
    close(variance, exact[1], rtol=1e-4)
    # the host inverts its transforms, and a sigmoid near one has lost its argument
    close(entropy_of_value, exact[2], rtol=1e-5)
    assert sites == [{"x"}]


def test_array_parameters_of_a_transform_move_with_the_value():
    shift = np.array([1.0, -2.0, 0.5])
    fn = dist.TransformedDistribution(
        dist.Normal(MEAN, SCALE), [ExpTransform(), AffineTransform(shift, 1.0)]
    )
    value = posterior_value("x", fn, FULL)
    column = distribution(lambda x: dist.Delta(x[:, None]), value).v
    assert column.shape == (3, 1)
    close(column(jnp.zeros((3, 1))), 1 + shift[:, None])


def test_multivariate_normals_of_a_batch():
    means = MEAN + np.arange(2.0)[:, None]
    for fn in (
        dist.MultivariateNormal(means, scale_tril=TRIL),
        dist.LowRankMultivariateNormal(means, TRIL[:, :1], np.ones(3)),
    ):

        def both(fn=fn):
            value = posterior_value("x", fn, FULL)
            ours = value.mean, value.covariance, entropy(value, fn)
            return ours, (fn.covariance_matrix, fn.entropy())

        (mean, covariance, entropy_of_value), exact = evaluated(both)
        close(mean, means)
        close(covariance, np.broadcast_to(exact[0], (2, 3, 3)))
        close(entropy_of_value, np.broadcast_to(exact[1], 2))
        with pytest.raises(UnsupportedMoments, match=r"ignore its correlations[\s\S]*AutoNormal"):
            posterior_value("x", fn, DIAGONAL)


def test_entropies_are_zero_where_a_guide_is_masked():
    mask = np.array([True, False, True])
    fn = dist.Normal(MEAN, SCALE).mask(mask)
    value = posterior_value("x", fn, FULL)
    close(entropy(value, fn), mask * fn.base_dist.entropy())
    close(entropy(value, fn.to_event(1)), (mask * fn.base_dist.entropy()).sum())


def test_other_posteriors_are_refused_with_remedy():
    refused = {
        "discrete": dist.Poisson(2.0),
        "has a Gamma posterior": dist.Gamma(2.0, 1.0),
        "scale that depends": distribution(lambda m: dist.Normal(0.0, jnp.exp(m)), latent("m")),
        "non-linear location": distribution(lambda m: dist.Normal(jnp.exp(m), 1.0), latent("m")),
        "transform that depends": distribution(
            lambda m: dist.TransformedDistribution(
                dist.Normal(MEAN, SCALE), [AffineTransform(m, 1.0)]
            ),
            latent("m"),
        ),
        "FoldedDistribution posterior": dist.FoldedDistribution(dist.Normal(MEAN, SCALE)),
    }
    for cause, fn in refused.items():
        with pytest.raises(UnsupportedMoments, match=cause) as refusal:
            posterior_value("x", fn, FULL)
        assert refusal.value.remedy
        assert "x" in refusal.value.sites


# ---------------------------------------------------------------------------------------------
# Terms


@pytest.mark.parametrize(
    "prior",
    [dist.Normal(0.3, 2.0), dist.Laplace(0.0, 1.5), dist.StudentT(4.0, 0.5, 1.0)],
    ids=lambda prior: type(prior).__name__,
)
def test_latent_term(prior):
    """s_model E[log p] + s_guide H, with the masks of both, by quadrature."""
    u, weights = (np.asarray(part) for part in oracles.narrow_grid(1, 1))
    u = MEAN + SCALE * u
    posterior = dist.Normal(MEAN, SCALE)
    mask = np.array([True, False, True])

    def both():
        wide, mine = prior.expand([3]), guide_site(posterior)
        value, half = mine["value"], guide_site(posterior.mask(mask))
        terms = {
            "plain": latent_term("x", site(wide, value), mine),
            "scaled": latent_term("x", site(wide, value, 4.0), guide_site(posterior, 4.0)),
            "apart": latent_term("x", site(wide, value, 4.0), guide_site(posterior, 3.0)),
            "masked": latent_term("x", site(wide.mask(mask), value), mine),
            "masked guide": latent_term("x", site(wide, half["value"]), half),
        }
        return terms, weights @ prior.log_prob(u), -(weights @ posterior.log_prob(u))

    terms, log_p, own = evaluated(both)
    close(terms["plain"], (log_p + own).sum(), rtol=1e-6)
    close(terms["scaled"], 4 * (log_p + own).sum(), rtol=1e-6)
    close(terms["apart"], (4 * log_p + 3 * own).sum(), rtol=1e-6)
    close(terms["masked"], (mask * log_p + own).sum(), rtol=1e-6)
    close(terms["masked guide"], (log_p + mask * own).sum(), rtol=1e-6)


def test_functions_of_other_sites_contribute_their_log_determinant():
    """As in AutoDiagonalNormal: an auxiliary vector, and a Delta for each site of the model."""

    def both():
        auxiliary = guide_site(dist.Normal(MEAN, SCALE))
        delta = distribution(lambda u: dist.Delta(jnp.exp(u), log_density=-u), auxiliary["value"])
        prior = dist.Gamma(2.0, 1.5).expand([3])
        term = latent_term("x", site(prior, delta.v), site(delta, delta.v))
        mine = guide_site(dist.LogNormal(MEAN, SCALE))
        expected = latent_term("x", site(prior, mine["value"]), mine)
        return term + auxiliary_term("_auto_latent", auxiliary), expected

    close(*evaluated(both))


def test_random_scales_are_refused():
    mine = guide_site(dist.Normal(MEAN, SCALE))
    with pytest.raises(UnsupportedMoments, match="scale of a site is random"):
        latent_term("x", site(dist.Normal(0.0, 1.0).expand([3]), mine["value"], latent()), mine)
