"""The guide in Pyro: its sites, their names, where it starts, and how it is stored."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from pyro_moments import SVI, DeterministicELBO, DVIGuide, VBPGuide, fit, linear_response, predict
from tests.pyro import models

X, Y = models.data()


def trained(model, **options):
    guide = DVIGuide(**options)
    DeterministicELBO().loss(model, guide, *models.data())
    return guide


def test_lazy_and_bound_guides_are_the_same():
    losses = []
    for make in (DVIGuide, lambda: DVIGuide(models.plain_function)):
        pyro.clear_param_store()
        pyro.set_rng_seed(1)
        losses.append(DeterministicELBO().loss(models.plain_function, make(), X, Y))
    assert losses[0] == losses[1]


def test_unbound_guide_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"DVIGuide\(model\)"):
        DVIGuide()(*models.data())
    with pytest.raises(RuntimeError, match="evaluate an ELBO first"):
        DVIGuide().median()


def test_posterior_samples_median_and_quantiles():
    guide = trained(models.linear_regression, init_scale=0.5)
    draws = guide.sample_posterior(4000)
    assert draws["w"].shape == (4000, 3)
    assert torch.allclose(draws["w"].std(0), torch.tensor(0.5), atol=0.03)
    assert torch.equal(guide.median()["w"], guide.locs.w.detach())
    low, high = guide.quantiles([0.05, 0.95])["b"]
    assert high - low == pytest.approx(2 * 1.6449 * 0.5, rel=1e-3)


def test_initial_scale_and_locations():
    guide = trained(models.sequential(), init_scale=0.01)
    low, high = guide.quantiles([0.1587, 0.8413])["network.0.weight"]
    assert torch.allclose((high - low) / 2, torch.tensor(0.01), rtol=1e-3)
    median = guide.median()
    assert 0 < median["network.0.bias"].std() < 1
    assert 0 < median["network.0.weight"].std() < 1


def test_locations_start_within_the_prior():
    def model(x, y):
        tight = pyro.sample("tight", dist.Normal(3.0, 1e-3).expand([3]).to_event(1))
        scalar = pyro.sample("scalar", dist.Normal(-2.0, 1.0))
        models.observe(x, dist.Normal(x @ tight + scalar, 1.0), y)

    median = trained(model).median()
    assert torch.allclose(median["tight"], torch.tensor(3.0), atol=0.01)
    assert median["scalar"] == -2


def test_a_custom_initialiser_is_used():
    def one(site):
        return torch.ones(site["fn"].shape())

    guide = trained(models.linear_regression, init_loc_fn=one)
    assert (guide.median()["w"] == 1).all()


def test_transformed_sites_live_on_their_support():
    def model(x, y):
        noise = pyro.sample("noise", dist.LogNormal(0.0, 1.0))
        models.observe(x, dist.Normal(0.0, noise), y)

    guide = trained(model, init_scale=0.4)
    assert (guide.sample_posterior(100)["noise"] > 0).all()
    low, middle, high = guide.quantiles([0.1, 0.5, 0.9])["noise"]
    assert 0 < low < middle < high
    assert guide.median()["noise"] == middle


def test_quantiles_rise_where_the_transform_falls():
    class Below(dist.Normal):
        support = dist.constraints.less_than(1.0)

    def model():
        pyro.sample("below", Below(torch.tensor([-1.0, -2.0]), 1.0).to_event(1))
        pyro.sample("above", dist.LogNormal(0.0, 1.0))
        pyro.sample("simplex", dist.Dirichlet(torch.ones(3)))

    guide = DVIGuide(model)
    guide()
    quantiles = guide.quantiles([0.1, 0.5, 0.9])
    assert (quantiles["below"].diff(dim=0) > 0).all()
    assert (quantiles["above"].diff(dim=0) > 0).all()
    assert quantiles["simplex"].shape == (3, 3)


def test_posterior_distributions_are_those_of_the_draws():
    guide = trained(models.linear_regression, init_scale=0.5)
    posterior = guide.get_posterior()
    assert posterior["w"].event_shape == (3,)
    assert torch.equal(posterior["w"].mean, guide.median()["w"])
    assert torch.allclose(posterior["w"].stddev, torch.tensor(0.5))


def test_locations_start_finite_where_the_prior_has_no_moments():
    def model():
        for degrees in (0.5, 1.5, 3.0):
            pyro.sample(f"{degrees}", dist.StudentT(degrees, torch.zeros(200), 1.0).to_event(1))

    guide = DVIGuide(model)
    guide()
    for location in guide.median().values():
        assert location.std().item() == pytest.approx(0.5, rel=0.2)


def test_init_scale_must_be_positive():
    with pytest.raises(ValueError, match="init_scale=0 must be positive"):
        DVIGuide(init_scale=0)


def dependent(x):
    upper = pyro.sample("upper", dist.LogNormal(0.0, 1.0))
    pyro.sample("inner", dist.Uniform(0.0, upper).expand([2]).to_event(1))


def of_the_subsample(x):
    with pyro.plate("data", 4, subsample_size=2) as index:
        pyro.sample("inner", dist.Uniform(0.0, 2.0 + x[index]))


@pytest.mark.parametrize("model", [dependent, of_the_subsample])
def test_a_support_that_moves_is_refused(model):
    with pytest.raises(UnsupportedMoments, match=r"'inner': its support depends on (upper|data)"):
        DVIGuide(model)(torch.arange(4.0))


def test_a_support_may_depend_on_the_data():
    def model(x):
        pyro.sample("w", dist.Normal(0.0, 1.0))
        pyro.sample("inner", dist.Uniform(x.min(), x.max()))

    guide = DVIGuide(model)
    guide(torch.arange(4.0))
    assert guide.median()["inner"].item() == pytest.approx(1.5)


@pytest.mark.parametrize("name", ["half", "type", "training"])
def test_a_site_is_named_like_an_attribute_of_a_module(name):
    def model(y=None):
        value = pyro.sample(name, dist.Normal(0.0, 1.0))
        with pyro.plate("rows", 10):
            pyro.sample("y", dist.Normal(value, 1.0), obs=y)

    y = torch.linspace(0.0, 1.0, 10)
    result = fit(model, DVIGuide(), y, method="newton")
    assert result.converged
    assert float(result.guide.median()[name]) == pytest.approx(float(y.sum()) / 11, rel=1e-4)
    assert float(linear_response(model, result, y).standard_deviation(name)) == pytest.approx(
        11**-0.5, rel=1e-4
    )


def regression(x, y=None):
    weight = pyro.sample("layer.weight", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    noise = pyro.sample("noise", dist.Gamma(2.0, 2.0))
    models.observe(x, dist.Normal(x @ weight, noise), y)


def after_training():
    x = torch.linspace(-1, 1, 10).reshape(5, 2)
    guide = DVIGuide()
    svi = SVI(regression, guide, DeterministicELBO())
    for _ in range(3):
        svi.step(x, x.sum(-1))
    return guide, x


def test_a_fresh_guide_takes_saved_parameters_and_predicts():
    guide, x = after_training()
    restored = DVIGuide()
    restored.load_state_dict(guide.state_dict())
    assert list(restored.parameters()) == []  # it has met no model
    ours, theirs = (predict(regression, g, x) for g in (restored, guide))
    assert ours.keys() == theirs.keys() == {"obs"}
    torch.testing.assert_close(ours["obs"].mean, theirs["obs"].mean)
    torch.testing.assert_close(restored.state_dict(), guide.state_dict())
    loss = DeterministicELBO().loss
    assert loss(regression, restored, x, x[:, 0]) == loss(regression, guide, x, x[:, 0])
    restored.load_state_dict({n: 0 * part for n, part in guide.state_dict().items()})
    assert all((part == 0).all() for part in restored.parameters())


def test_saved_parameters_of_another_model_are_refused():
    guide, x = after_training()
    restored = DVIGuide()
    restored.load_state_dict({**guide.state_dict(), "locs.other_unconstrained": torch.zeros(2)})
    with pytest.raises(RuntimeError, match=r"locs\.other_unconstrained"):
        DeterministicELBO().loss(regression, restored, x, x[:, 0])


def test_the_start_of_variance_back_propagation():
    def network(x):
        shapes = {"torch": [40, 50], "flax": [50, 40], "kernel": [30, 3, 5, 5], "bias": [40]}
        site = {
            name: pyro.sample(name, dist.Normal(1.0, 0.1).expand(shape).to_event(len(shape)))
            for name, shape in shapes.items()
        }
        hidden = torch.nn.functional.linear(x, site["torch"]) + x @ site["flax"] + site["bias"]
        return hidden, torch.nn.functional.conv2d(torch.ones(1, 3, 5, 5), site["kernel"])

    guide = VBPGuide(network)
    guide(torch.ones(2, 50))
    posterior = guide.get_posterior()
    for name, fan_in in {"torch": 50, "flax": 50, "kernel": 75}.items():
        assert posterior[name].mean.std().item() == pytest.approx(fan_in**-0.5, rel=0.06)
    assert (posterior["bias"].mean == 0).all()
    log_variances = 2 * posterior["torch"].stddev.log()
    assert log_variances.mean().item() == pytest.approx(-9, abs=1e-4)
    assert log_variances.std().item() == pytest.approx(1e-3, rel=0.06)
