"""The scale of Normal noise by type-II maximum likelihood: after an epoch, or in the loss."""

import numpy as np
import pytest
from torch.utils.data import DataLoader, TensorDataset

from moment_inference.optimisation.precision import best_variance, profiled
from tests.checks.marks import IN_PYRO
from tests.fitting.models import X, Y

DOUBLE = {"float64": True, "progress_bar": False}


def noisy(host, family="Normal", start=1.0, scales=("sigma",)):
    """A regression whose noise has a parameter as scale, or a product of parameters."""
    positive = host.dist.constraints.positive

    def model(x, y=None):
        value = host.language.sample("weight", host.dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        scale = 1.0
        for name in scales:
            begin = host.array(start) if host.name == "pyro" else start
            scale = scale * host.language.param(name, begin, constraint=positive)
        host.observe(x, getattr(host.dist, family)(x @ value, scale), y)

    return model


def root_mean_square(host, fit):
    """√(mean of (y − m)² + v), the best scale of the noise, from the parameters."""
    names = ("weight_auto_loc", "weight_auto_scale")
    if host.name == "pyro":
        names = ("DVIGuide.locs.weight", "DVIGuide.scales.weight")
    mean, scale = (np.asarray(fit.params[name], np.float64) for name in names)
    residual, x = Y.astype(float) - X.astype(float) @ mean, X.astype(float)
    return np.mean(residual**2 + (x * x) @ (scale * scale)) ** 0.5


def test_the_closed_form_is_the_least_loss():
    """Of K + W t + ½ S e^{−2t}, against its values on a grid."""
    weight, squares, grid = np.float64(7.0), np.float64(3.0), np.linspace(-1, 0.5, 10**5)
    slope, curvature = weight - squares, 2 * squares
    losses = 2.5 + weight * grid + squares * np.exp(-2 * grid) / 2
    best = np.log(best_variance(slope, curvature)) / 2
    assert best == pytest.approx(grid[losses.argmin()], abs=2e-5)
    least = profiled(np.log, 2.5 + squares / 2, slope, curvature)
    assert least == pytest.approx(losses.min(), abs=1e-9)


def test_both_ways_have_the_same_optimum(host):
    model = noisy(host)
    inside = host.fit(model, host.x, host.y, precision="profile", method="lbfgs", **DOUBLE)
    sigma = float(inside.params["sigma"])
    assert sigma == pytest.approx(root_mean_square(host, inside), rel=1e-8)
    inside.params["sigma"] = np.asarray(2.0 * sigma)
    still = {"learning_rate": 0.0, "steps": 1, "start": inside}
    after = host.fit(model, host.x, host.y, precision="type-II", **still, **DOUBLE)
    assert float(after.params["sigma"]) == pytest.approx(sigma, rel=1e-8)
    assert after.loss == pytest.approx(inside.loss, rel=1e-8)


@IN_PYRO
def test_the_optimum_is_that_of_a_trained_scale(host):
    model = noisy(host)
    options = {"method": "newton", **DOUBLE}
    inside = host.fit(model, host.x, host.y, precision="profile", **options)
    trained = host.fit(model, host.x, host.y, **options)
    assert inside.loss == pytest.approx(trained.loss, rel=1e-8)
    variance = host.package.predict(model, inside, host.x[:1])["obs"].aleatoric_variance
    assert float(variance) == pytest.approx(float(trained.params["sigma"]) ** 2, rel=1e-6)


def test_an_epoch_ends_with_the_best_scale_on_all_rows(host):
    found = host.fit(noisy(host), host.x, host.y, precision="type-II", batch_size=32, epochs=2)
    sigma = float(found.params["sigma"])
    assert sigma == pytest.approx(root_mean_square(host, found), rel=1e-5)


@IN_PYRO
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"family": "Laplace"},
            r"its positive ones, sigma, are no such scale: sigma = pyro\.param",
        ),
        ({"scales": ("one", "other")}, r"the parameters one, other enter the loss as scales"),
        ({"scales": ()}, r"its positive ones, none, are no such scale"),
    ],
)
def test_other_models_are_refused(host, model, words):
    with pytest.raises(ValueError, match=words):
        host.fit(noisy(host, **model), host.x, host.y, precision="type-II")


@IN_PYRO
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "type II"}, "precision must be one of 'type-II', 'profile', got 'type II'"),
        ({"precision": "type-II", "method": "newton"}, r"takes precision='profile'"),
        ({"precision": "profile", "batch_size": 8}, r"take precision='type-II'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(host, options, words):
    with pytest.raises(ValueError, match=words):
        host.fit(noisy(host), host.x, host.y, **options)


@IN_PYRO
def test_a_loader_is_refused(host):
    batches = DataLoader(TensorDataset(host.x, host.y), batch_size=8)
    with pytest.raises(ValueError, match="does not give all rows at once"):
        host.fit(noisy(host), batches, precision="type-II")
