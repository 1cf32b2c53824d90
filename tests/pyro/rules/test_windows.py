"""Convolutions, pools, padding and largest entries of torch, against exact moments and draws."""

import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.functional as F
from pyro.nn import PyroModule, PyroSample
from torch import nn

from moment_calculus.errors import CovarianceDroppedWarning
from pyro_moments import DeterministicELBO, DVIGuide, Moments, UnsupportedMoments, propagate
from tests.pyro.compiled.compiling import assert_same, make
from tests.pyro.rules.linear_maps import MODES, check_exact, moments

pytestmark = [
    pytest.mark.usefixtures("double_precision"),
    pytest.mark.filterwarnings("ignore:Using padding='same'"),
]

CONVOLUTIONS = {
    "1-D": (lambda x, w: F.conv1d(x, w, None, 2, 1, 2), (2, 3, 6), (2, 3, 2)),
    "same": (lambda x, w: F.conv2d(x, w, padding="same"), (1, 2, 3, 4), (2, 2, 2, 3)),
    "groups": (lambda x, w: F.conv2d(x, w, None, (1, 2), (0, 1), 1, 2), (1, 4, 2, 3), (4, 2, 2, 2)),
    "3-D": (F.conv3d, (1, 1, 3, 2, 2), (2, 1, 2, 2, 2)),
    "no batch": (lambda x, w: F.conv2d(x, w, padding=1), (1, 2, 3), (2, 1, 2, 2)),
    "transposed 1-D": (lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1), (2, 3, 3), (3, 2, 3)),
    "transposed 2-D": (
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1, 2, 2),
        (1, 4, 2, 2),
        (4, 1, 2, 3),
    ),
    "transposed 3-D": (F.conv_transpose3d, (1, 1, 2, 1, 2), (1, 2, 2, 1, 2)),
    "transposed, cropped": (
        lambda x, w: F.conv_transpose2d(x, w, None, 1, 2),
        (2, 4, 4),
        (2, 2, 2, 2),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_exact_of_random_inputs_random_weights_and_both(name):
    function, inputs, weight = CONVOLUTIONS[name]
    x, w = moments(*inputs).mean, moments(*weight).mean
    check_exact(function, inputs, weight)
    check_exact(lambda v: function(v, w), inputs)
    check_exact(lambda v: function(x, v), weight)


def test_biases_may_be_random_alone_and_full_mode_has_the_covariance_of_channels():
    x, w = moments(1, 2, 3).mean, moments(2, 2, 2).mean
    check_exact(lambda b: F.conv1d(x, w, b), (2,))
    layer = lambda v: F.conv1d(v, w).mT  # noqa: E731
    given = moments(1, 2, 3)
    slope = torch.func.jacrev(layer)(given.mean).flatten(3)
    covariance = torch.einsum("...ik,k,...jk->...ij", slope, given.variance.flatten(), slope)
    found = propagate(layer, given, covariance="full").covariance
    torch.testing.assert_close(found, covariance, rtol=1e-10, atol=1e-12)


MOVES = {
    "constant": (lambda x: F.pad(x, (1, -1, 0, 2), value=2.0), (1, 2, 3, 3)),
    "constant_pad_nd": (lambda x: torch.constant_pad_nd(x, (1, 1), 0.5), (2, 3)),
    "reflect": (lambda x: F.pad(x, (1, 2), "reflect"), (2, 3, 4)),
    "circular": (lambda x: F.pad(x, (1, 2, 1, 0), mode="circular"), (1, 2, 3, 4)),
    "replicate": (lambda x: F.pad(x, (1, 2, 1, 0), mode="replicate"), (1, 2, 3, 4)),
    "unfold": (lambda x: F.unfold(x, (2, 3), (2, 1), 1, 2), (2, 2, 4, 4)),
    "unfold, no batch": (lambda x: F.unfold(x, 2), (2, 3, 3)),
    "Tensor.unfold": (lambda x: x.unfold(1, 2, 2), (2, 5, 3)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=1.7), (1, 2, 3, 4)),
    "nearest-exact": (lambda x: F.interpolate(x, size=(2, 5), mode="nearest-exact"), (1, 2, 3, 4)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (1, 8, 2, 3)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (1, 2, 4, 2)),
}
MEANS = {
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), (2, 3, 6)),
    "padded": (lambda x: F.avg_pool2d(x, 3, 2, 1), (1, 2, 5, 5)),
    "without the padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (1, 2, 4, 6)),
    "ceil_mode": (lambda x: F.avg_pool2d(x, (3, 2), (2, 3), 1, True), (1, 2, 6, 6)),
    "divisor_override": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (2, 5, 5)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 1, 1), (1, 1, 2, 3, 2)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 2), (2, 3, 6)),
    "unequal bins": (lambda x: F.adaptive_avg_pool2d(x, (2, None)), (1, 2, 5, 4)),
    "more bins than entries": (lambda x: F.adaptive_avg_pool2d(x, 2), (2, 1, 1)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 1), (1, 2, 2, 2, 2)),
}


@pytest.mark.parametrize("name", [*MOVES, *MEANS])
def test_moves_and_means_are_exact(name):
    check_exact(*(MOVES | MEANS)[name])


MODULES = {
    "circular": (nn.Conv2d(2, 2, 2, padding=1, padding_mode="circular"), (1, 2, 3, 3)),
    "reflect": (nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect"), (1, 2, 4)),
    "transposed": (nn.ConvTranspose2d(2, 1, 2, stride=2), (1, 2, 2, 2)),
    "batch norm": (nn.Sequential(nn.Conv1d(2, 2, 2), nn.BatchNorm1d(2)).eval(), (1, 2, 3)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_with_certain_weights_are_exact(name):
    module, shape = MODULES[name]
    check_exact(module.double(), shape, modes=("backward",))


MAXIMA = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (2, 2, 4)),
    "padded": (lambda x: F.max_pool2d(x, 3, 2, 1), (1, 1, 4, 4)),
    "ceil_mode": (lambda x: F.max_pool2d(x, 2, 3, 1, 1, True), (1, 1, 6, 5)),
    "dilated": (lambda x: F.max_pool2d(x, 2, 1, 0, 2), (1, 4, 3)),
    "with indices": (lambda x: F.max_pool2d(x, 2, 1, return_indices=True)[0], (1, 3, 3)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1, 1), (1, 1, 1, 2, 2)),
    "adaptive": (lambda x: F.adaptive_max_pool2d(x, (2, None)), (1, 1, 5, 2)),
    "adaptive, with indices": (lambda x: F.adaptive_max_pool1d(x, 2, True)[0], (2, 2, 4)),
    "amax": (lambda x: x.amax((1, -1)), (2, 2, 3)),
    "amin": (lambda x: x.amin(1, True), (2, 6)),
    "max": (lambda x: x.max(), (2, 3)),
    "max of an axis": (lambda x: torch.max(x, -1)[0], (2, 5)),
    "min of an axis": (lambda x: x.min(0, keepdim=True).values, (3, 2)),
    "max of two": (lambda x: torch.max(x, x[:1]), (3, 2)),
    "min of two": (lambda x: torch.min(input=x, other=x[:1]), (3, 2)),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_largest_entries_are_near_those_of_draws(name):
    """Within what moment_calculus/operations/windows/largest.py states."""
    function, shape = MAXIMA[name]
    given, generator = moments(*shape), torch.Generator().manual_seed(0)
    z = torch.randn(8000, *shape, generator=generator)
    draws = torch.vmap(function)(given.mean + given.variance.sqrt() * z)
    for mode in MODES:
        found = propagate(function, given, covariance=mode)
        assert found.mean.shape == draws.shape[1:]
        assert ((found.mean - draws.mean(0)).abs() < 0.1 * draws.std(0)).all()
        assert ((found.variance.sqrt() / draws.std(0) - 1).abs() < 0.15).all()


NORMALISED = {
    "instance norm": F.instance_norm,
    "two groups": lambda h: F.group_norm(h, 2),
    "one group": lambda h: F.group_norm(h, 1),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_normalised_channels_behind_a_convolution_are_near_those_of_draws(name):
    given, images = moments(2, 1, 2), moments(2, 1, 6).mean
    given = Moments(given.mean, variance=0.002 * given.variance)
    function = lambda w: NORMALISED[name](F.conv1d(images, w))  # noqa: E731
    z = torch.randn(20_000, 2, 1, 2, generator=torch.Generator().manual_seed(0))
    draws = torch.vmap(function)(given.mean + given.variance.sqrt() * z)
    found = propagate(function, given, covariance="backward")
    spread = draws.std(0)
    assert (found.mean - draws.mean(0)).abs().max() < 0.03 * spread.max()
    assert (found.variance.sqrt() - spread).abs().max() < 0.03 * spread.max()


CONDITIONS = {
    "float": lambda h: (h > 0).double(),
    "of a function": lambda h: 2 * (h.tanh() <= 0.2).to(h),
    "array": lambda h: (h > torch.tensor([0.0, 1.0])).type_as(h),
    "mask": lambda h: (h > 0) * h,
    "where": lambda h: torch.where(h > 0, h, 0.1 * h),
    "method": lambda h: h.where(h < 0.5, torch.tensor(2.0)),
    "certain": lambda h: torch.where(h == 1.0, 1.0, 2.0),
    "certain choice": lambda h: torch.where(h == 1.0, 1.0, h),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_comparisons_are_numbers_where_a_program_makes_them_so(name):
    function, given = CONDITIONS[name], moments(2, 2)
    z = torch.randn(20_000, 2, 2, generator=torch.Generator().manual_seed(0))
    draws = torch.vmap(function)(given.mean + given.variance.sqrt() * z)
    found = propagate(function, given, covariance="diagonal")
    mean, variance = getattr(found, "mean", found), getattr(found, "variance", draws.var(0))
    if isinstance(found, torch.Tensor):
        mean = found
    torch.testing.assert_close(mean, draws.mean(0), rtol=0.03, atol=0.03)
    torch.testing.assert_close(variance, draws.var(0), rtol=0.05, atol=0.03)


IMAGES = torch.randn(3, 1, 2, 4, generator=torch.Generator().manual_seed(1)).double()
CLASSES = torch.tensor([0, 2, 1])


class Small(PyroModule):
    """A convolutional network whose weights are all sites."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d((None, 1)),
            nn.Flatten(),
            nn.Linear(2, 3),
        )
        pyro.nn.module.to_pyro_module_(self.layers)
        for layer in (self.layers[0], self.layers[-1]):
            for name, part in list(layer.named_parameters()):
                prior = dist.Normal(torch.zeros(part.shape), 0.5).to_event(part.ndim)
                setattr(layer, name, PyroSample(prior))

    def forward(self, x, y=None):
        logits = self.layers(x)
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Categorical(logits=logits), obs=y)


@pytest.mark.filterwarnings("error::moment_calculus.errors.DependenceWarning")
@pytest.mark.parametrize("covariance", ["backward", "diagonal"])
def test_compiled_networks_have_the_loss_and_the_gradients_of_eager_ones(covariance):
    elbo, eager = make(covariance=covariance), DeterministicELBO(covariance=covariance)
    assert_same(elbo, eager, Small(), DVIGuide(), IMAGES, CLASSES)
    assert elbo.compiled.programs


def test_single_precision_is_near_double_precision():
    def network(x, w):
        return F.avg_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).amax(1)

    given, found = [moments(1, 1, 4, 4), moments(2, 1, 2, 2)], []
    for dtype in (torch.float32, torch.float64):
        parts = [Moments(o.mean.to(dtype), variance=o.variance.to(dtype)) for o in given]
        found.append(propagate(network, *parts, covariance="backward"))
    assert found[0].variance.dtype == torch.float32
    for part in ("mean", "variance"):
        single, double = (getattr(one, part).double() for one in found)
        torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-6)


def test_draws_of_all_weights_have_the_closed_form_for_their_mean():
    """By torch.func.vmap over the draws; the ELBO has its own where the logits are Gaussian."""
    model, guide = Small(), DVIGuide(init_scale=0.05)
    exact = DeterministicELBO(covariance="backward").loss(model, guide, IMAGES, CLASSES)
    pyro.set_rng_seed(0)
    drawn = DeterministicELBO(propagation="sampled", num_particles=200)
    assert drawn.loss(model, guide, IMAGES, CLASSES) == pytest.approx(exact, rel=0.01)


REFUSALS = {
    "places": (lambda h: F.max_pool1d(h, 2, return_indices=True)[1].double(), "place of the larg"),
    "places as an index": (lambda h: h[0, torch.max(h[0], 0).indices], "place of the largest"),
    "sorted": (lambda h: h.sort()[0], "(?s)components in order.*amax and amin"),
    "topk": (lambda h: h.topk(2), "topk: the joint moments of random comp"),
    "argmax": (lambda h: h.argmax(-1), "(?s)argmax: the place.*predictive moments"),
    "cumprod": (lambda h: h.cumprod(0), "(?s)cumulative products.*two values at a time"),
    "many": (lambda h: h.expand(70, 2, 4).amax(0), "(?s)smallest of 70.*at most 64.*logsumexp"),
    "bilinear": (lambda h: F.interpolate(h[None], 2, mode="linear"), "(?s)mode='linear'.*nearest"),
    "random padding": (lambda h: F.pad(h, (1, 1), value=h[0, 0]), "padding with a random value"),
    "train": (nn.BatchNorm1d(4).double(), r"(?s)statistics of the random batch.*\.eval\(\)"),
    "tracked": (
        nn.InstanceNorm1d(2, track_running_stats=True).double(),
        r"(?s)tracks statistics.*track_running_stats=False",
    ),
    "comparison of two": (lambda h: (h[0] > h[1].relu()).double(), "(?s)functions of different"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_names_cause_and_remedy(name):
    function, message = REFUSALS[name]
    with pytest.raises(UnsupportedMoments, match=message):
        propagate(function, moments(2, 4) if name != "tracked" else moments(1, 2, 4))


def test_hidden_values_are_refused_in_full_mode_and_their_pools_warn():
    w = moments(1, 1, 2)

    def twice(x):
        return F.conv1d(F.relu(F.conv1d(x, w.mean)), w.mean)

    with pytest.raises(UnsupportedMoments, match=r"(?s)covariance of all positions.*backward"):
        propagate(twice, moments(1, 1, 4), covariance="full")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        propagate(lambda x: F.max_pool1d(F.conv1d(x, w.mean), 2), moments(1, 1, 4))
    assert {one.category for one in caught} <= {CovarianceDroppedWarning}
