"""Every likelihood against quadrature over its own density, as the host evaluates it."""

from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO

from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.operations.normalised.softmax import Softmax
from moment_calculus.values import Gaussian, Opaque, Spread
from moment_calculus.values.propagation import Propagation
from pyro_moments import DeterministicELBO, DVIGuide, MomentTensor, UnsupportedMoments
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.likelihoods.expected import evaluate, predictive
from tests.oracles import quadrature as oracles
from tests.pyro.likelihoods.cases import CASES, CLASSES, CONTINUOUS, COUNTS, POSITIVE

MEAN = torch.tensor([-0.8, 0.3, 1.1], dtype=torch.float64)
VARIANCE = torch.tensor([0.3, 0.9, 0.05], dtype=torch.float64)

pytestmark = pytest.mark.usefixtures("double_precision")


def latent(name="f", mean=MEAN, variance=VARIANCE):
    return MomentTensor(site_value(name, mean, variance, Propagation(), event_dim=0))


def points():
    """Points of f with weights, [points, 3] and [points, 1]."""
    z, weights = map(torch.as_tensor, oracles.narrow_grid(1, 1))
    return MEAN + VARIANCE.sqrt() * z, weights[:, None]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_expected_log_density(name):
    make, value = CASES[name]
    f, weights = points()
    certain = make(f) if name != "transformed" else dist.Normal(f, 2.0)
    expected = (weights * certain.log_prob(value)).sum(0)
    close(evaluate("obs", make(latent()), value), expected)


# The moments of a LogNormal with a log-normal scale do not exist.
PREDICTED = [name for name in CASES if name not in ("transformed", "LogNormal, scale")]


@pytest.mark.parametrize("name", PREDICTED)
def test_predictive_moments_and_density(name):
    make, value = CASES[name]
    f, weights = points()
    certain = make(f)
    mean, epistemic, aleatoric, log_prob = predictive("obs", make(latent()))
    density = (weights * certain.log_prob(value).exp()).sum(0)
    close(log_prob(value), density.log())
    if name == "OrderedLogistic":
        centre = (weights[..., None] * certain.probs).sum(0)
        close(mean, centre)
        close(epistemic, (weights[..., None] * (certain.probs - centre) ** 2).sum(0))
        close(epistemic + aleatoric, centre * (1 - centre))
        return
    close(mean, (weights * certain.mean).sum(0))
    location = certain.loc if name == "Cauchy" else certain.mean  # which does not exist
    centre = (weights * location).sum(0)
    close(epistemic, (weights * (location - centre) ** 2).sum(0))
    close(aleatoric, (weights * certain.variance).sum(0))


def test_masks_expansions_and_independent_dimensions():
    make, value = CASES["Poisson, exp"]
    plain = evaluate("obs", make(latent()), value)
    mask = torch.tensor([True, False, True])
    close(evaluate("obs", make(latent()).mask(mask), value), plain * mask)
    close(evaluate("obs", make(latent()).to_event(1), value), plain.sum())
    wide = make(latent()).expand([2, 3])
    close(evaluate("obs", wide, value.expand(2, 3)), plain.expand(2, 3))


def test_expansion_keeps_two_parameters_on_one_gaussian():
    """Location and scale are expanded apart, and still known to be driven by the same f."""
    make, value = CASES["StudentT, both"]
    plain = evaluate("obs", make(latent()), value)
    wide = make(latent()).expand([2, 3])
    close(evaluate("obs", wide, value.expand(2, 3)), plain.expand(2, 3))


def test_two_independent_gaussians_are_not_taken_as_one():
    """Gamma with both parameters random: nested quadrature against a grid."""
    h_mean, h_variance = MEAN / 2 + 0.1, VARIANCE / 3
    first, second = latent(), latent("h", h_mean, h_variance)
    actual = evaluate("obs", dist.Gamma(torch.exp(first), torch.exp(second)), POSITIVE)
    z, weights = map(torch.as_tensor, oracles.hermite_grid(60, 2))
    concentration = (MEAN + VARIANCE.sqrt() * z[:, :1]).exp()
    rate = (h_mean + h_variance.sqrt() * z[:, 1:]).exp()
    densities = dist.Gamma(concentration, rate).log_prob(POSITIVE)
    close(actual, (weights[:, None] * densities).sum(0))


def test_generic_quadrature_over_two_gaussians():
    first, second = latent(), latent("h", MEAN / 2, VARIANCE / 3)
    fn = dist.Logistic(first, torch.exp(second))
    z, weights = map(torch.as_tensor, oracles.hermite_grid(140, 2))
    scale = (MEAN / 2 + (VARIANCE / 3).sqrt() * z[:, 1:]).exp()
    certain, weights = dist.Logistic(MEAN + VARIANCE.sqrt() * z[:, :1], scale), weights[:, None]
    densities = certain.log_prob(CONTINUOUS)
    close(evaluate("obs", fn, CONTINUOUS), (weights * densities).sum(0))
    mean, epistemic, aleatoric, log_prob = predictive("obs", fn)
    close(mean, MEAN)
    close(epistemic, VARIANCE)
    close(aleatoric, (weights * certain.variance).sum(0))
    close(log_prob(CONTINUOUS), (weights * densities.exp()).sum(0).log())


def test_three_gaussians_are_integrated_if_one_is_independent():
    """A Student likelihood with three random parameters, beside a product of Gauss rules."""
    df, loc, scale = (latent(name) for name in "abc")
    value = CONTINUOUS.double()
    found = evaluate("obs", dist.StudentT(torch.exp(df), loc, torch.exp(scale)), value)
    places, weights = (torch.tensor(part) for part in np.polynomial.hermite_e.hermegauss(60))
    weights = weights / weights.sum()
    deviation = df.value.variance.sqrt()
    points = df.value.mean + deviation * places[:, None]
    total = 0.0
    for one, share in zip(points, weights, strict=True):
        nested = dist.StudentT(one.exp(), points[:, None], points.exp()).log_prob(value)
        total = total + share * torch.einsum("i,j,ijn->n", weights, weights, nested)
    torch.testing.assert_close(found, total, rtol=1e-4, atol=1e-4)


def test_three_dependent_gaussians_are_refused_with_remedy():
    a, b = (latent(name) for name in "ab")
    fn = dist.ZeroInflatedDistribution(
        dist.Gumbel(a, torch.exp(b)), gate_logits=a + b, validate_args=False
    )
    with pytest.raises(UnsupportedMoments, match=r"three parameters[\s\S]*sliced from one"):
        evaluate("obs", fn, CONTINUOUS)


def test_dependence_that_is_not_known_is_refused():
    """Two nonlinear functions of the same weights that no graph connects."""
    f = latent()
    loc, scale = f.value, site_value("f", MEAN, VARIANCE, Propagation(), event_dim=0)
    unknown = Gaussian(loc.mean, Spread(loc.variance), Opaque((scale,)), axis=None)
    fn = dist.Gumbel(MomentTensor(unknown), torch.exp(MomentTensor(scale)))
    with pytest.raises(UnsupportedMoments, match="covariance is not known"):
        evaluate("obs", fn, CONTINUOUS)


def test_parameters_of_vectors_are_not_taken_as_univariate():
    fn = dist.Gumbel(torch.zeros(2), torch.ones(2))
    fn.weights = latent("w", MEAN.expand(2, 3), VARIANCE.expand(2, 3))
    with pytest.raises(UnsupportedMoments, match="not those of a univariate"):
        evaluate("obs", fn, torch.zeros(2))


def test_gaussian_scales_rates_and_probabilities_are_refused():
    f = latent(mean=MEAN.abs())
    for fn, value in (
        (dist.Laplace(0.0, f), CONTINUOUS),
        (dist.Poisson(f), COUNTS),
        (dist.Bernoulli(f, validate_args=False), torch.ones(3)),
    ):
        with pytest.raises(UnsupportedMoments, match=r"f\b"):
            evaluate("obs", fn, value)


def test_ordered_probabilities_are_of_no_other_use():
    """Their tensor is NaN: only the rule of the distribution knows the random predictor."""
    fn = dist.OrderedLogistic(latent(), torch.tensor([-0.5, 0.6], dtype=torch.float64))
    assert fn.probs.isnan().all()
    assert evaluate("obs", fn, CLASSES).isfinite().all()
    with pytest.raises(UnsupportedMoments, match="in place"):
        torch.zeros(3)[0] = latent()[0]


def test_random_factors_enter_with_their_mean():
    f, weights = points()
    for make in (lambda f: 2 * f, torch.exp):
        actual = evaluate("factor", dist.Unit(make(latent())), torch.empty(3, 0))
        close(actual, (weights * make(f)).sum(0))


def test_a_delta_contributes_the_mean_of_its_log_density():
    f, weights = points()
    fn = dist.Delta(torch.zeros(3), log_density=torch.exp(latent()))
    close(evaluate("x", fn, torch.zeros(3)), (weights * f.exp()).sum(0))


def test_single_precision_is_integrated_in_double():
    f = latent(mean=MEAN.float(), variance=VARIANCE.float())
    for name in ("Gumbel", "ZeroInflatedPoisson", "Poisson, softplus"):
        make, value = CASES[name]
        actual = evaluate("obs", make(f), value.float())
        torch.testing.assert_close(
            actual.double(), evaluate("obs", make(latent()), value), rtol=1e-5, atol=1e-6
        )


def test_a_multinomial_is_a_sum_of_categorical_terms():
    logits = MomentTensor(site_value("f", MEAN.expand(2, 3), VARIANCE.expand(2, 3), Propagation()))
    counts = torch.tensor([[2.0, 0.0, 1.0]]).expand(2, 3)
    actual = evaluate("obs", dist.Multinomial(3, logits=logits), counts)
    each = [evaluate("obs", dist.Categorical(logits=logits), torch.tensor([k, k])) for k in (0, 2)]
    close(actual, 2 * each[0] + each[1] + torch.tensor(3.0).log())


def of_logits(make):
    """The moments of a distribution of two points with three classes."""
    flow = Propagation(categorical="pairs")  # the same for equal logits, whatever their row
    return make(MomentTensor(site_value("f", MEAN.expand(2, 3), VARIANCE.expand(2, 3), flow)))


@pytest.mark.parametrize(
    "probabilities",
    [
        lambda f: torch.softmax(f, -1),
        lambda f: torch.softmax(f, -1).unsqueeze(0),
        lambda f: torch.softmax(torch.log_softmax(f, -1), -1),
        lambda f: torch.softmax(f, -1).expand(2, 2, 3),
    ],
)
def test_probabilities_that_are_a_softmax_of_logits_are_seen_through(probabilities):
    classes, counts = torch.tensor([2, 0]), torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
    for value, kind in ((classes, dist.Categorical), (counts, partial(dist.Multinomial, 3))):
        expected = evaluate("obs", of_logits(lambda f, k=kind: k(logits=f)), value)
        actual = evaluate("obs", of_logits(lambda f, k=kind: k(probs=probabilities(f))), value)
        close(actual, expected.expand(actual.shape))


def test_other_probabilities_of_classes_are_refused():
    for make in (torch.sigmoid, lambda f: torch.softmax(f, 0), lambda f: torch.softmax(f, -1) ** 2):
        with pytest.raises(UnsupportedMoments):
            evaluate("obs", of_logits(lambda f, m=make: dist.Categorical(m(f))), torch.tensor(0))


def _over_own_sum(shares):
    return shares / shares.sum(-1, keepdim=True)


def test_the_sum_of_a_softmax_is_one():
    total = of_logits(lambda f: torch.softmax(f, -1).sum(-1, keepdim=True))
    close(unwrap(total).gaussian().mean, torch.ones(2, 1))
    close(unwrap(total).gaussian().variance, torch.zeros(2, 1))
    shares = of_logits(lambda f: _over_own_sum(torch.softmax(f, -1)))
    assert isinstance(unwrap(shares), Softmax)


def test_a_multinomial_of_logits_from_two_plates():
    """Its constructor asks for the probabilities, of logits that it has normalised."""

    def model(counts):
        with pyro.plate("classes", 2, dim=-1):
            rate = pyro.sample("rate", dist.Normal(0.0, 1.0))
            with pyro.plate("regions", 3, dim=-2):
                start = pyro.sample("start", dist.Normal(0.0, 1.0))
        logits = start + rate * torch.arange(4.0)[:, None, None]
        with pyro.plate("times", 4, dim=-3), pyro.plate("places", 3, dim=-2):
            fn = dist.Multinomial(logits=logits.unsqueeze(-2), validate_args=False)
            pyro.sample("obs", fn, obs=counts)

    counts = torch.tensor([1.0, 0.0]).expand(4, 3, 1, 2)
    guide, sampled = DVIGuide(init_scale=0.1), Trace_ELBO(num_particles=400)
    loss = DeterministicELBO().loss(model, guide, counts)
    assert abs(loss - sampled.loss(model, guide, counts)) < 0.3


def test_a_class_may_be_one_hot():
    """It is the class of a Categorical, and a Multinomial of one trial."""
    classes = torch.tensor([2, 0])
    counts = torch.nn.functional.one_hot(classes, 3).float()
    expected = evaluate("obs", of_logits(lambda f: dist.Categorical(logits=f)), classes)
    for kind in (dist.OneHotCategorical, partial(dist.Multinomial, 1)):
        close(evaluate("obs", of_logits(lambda f, k=kind: k(logits=f)), counts), expected)
