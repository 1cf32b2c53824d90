"""Networks that are initialised and normalised by propagated statistics of the data."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

import numpyro_moments
import pyro_moments
from moment_calculus.errors import UnsupportedMoments

MEAN, VARIANCE = np.array([0.3, -0.5]), np.array([0.8, 1.7])
DRAWS = 40_000


class Swapped(nn.Module):
    """Flatten with the channels last, as flax does."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)


def in_torch(norm=False):
    """Two convolutions, of which one has groups and a dilation, and two linear maps."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2, padding=1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(6, 4, (2, 3), groups=2, dilation=(2, 1)),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4 * 4 * 4, 5),
        *([pyro_moments.AnalyticNorm(5)] if norm else []),
        nn.ReLU(),
        nn.Linear(5, 3),
    ).double()


def in_flax(net, norm=False):
    """The same network, with the same weights."""
    rngs = nnx.Rngs(0)
    first, second, *_ = convolutions = [part for part in net if isinstance(part, nn.Conv2d)]
    linear = [part for part in net if isinstance(part, nn.Linear)]
    options = {"padding": "VALID", "rngs": rngs, "param_dtype": float}
    layers = [
        nnx.Conv(2, 6, (3, 3), strides=2, **options | {"padding": 1}),
        nnx.Conv(6, 4, (2, 3), feature_group_count=2, kernel_dilation=(2, 1), **options),
        nnx.Linear(64, 5, rngs=rngs, param_dtype=float),
        nnx.Linear(5, 3, rngs=rngs, param_dtype=float),
    ]
    for layer, part in zip(layers, [first, second, *linear], strict=True):
        layer.kernel[...] = jnp.asarray(as_in_flax(part, part is linear[0]))
        layer.bias[...] = jnp.asarray(part.bias.detach().numpy())
    assert len(convolutions) == 2
    return nnx.Sequential(
        layers[0],
        lambda h: jax.nn.leaky_relu(h, 0.1),
        layers[1],
        jnp.tanh,
        lambda h: h.reshape(h.shape[0], -1),
        layers[2],
        *([numpyro_moments.AnalyticNorm(5)] if norm else []),
        nnx.relu,
        layers[3],
    )


def as_in_flax(part, flattened=False):
    """Return torch's weight in flax's order, channels of a flattening last."""
    weight = part.weight.detach().numpy()
    if weight.ndim > 2:
        return weight.transpose(2, 3, 1, 0)
    if flattened:
        weight = weight.reshape(5, 4, 16).swapaxes(1, 2).reshape(5, 64)
    return weight.T


def test_linear_maps_of_both_hosts_are_initialised_alike():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    with jax.enable_x64(True):
        rngs = nnx.Rngs(0)
        layers = [nnx.Linear(*shape, rngs=rngs, param_dtype=float) for shape in ((2, 3), (3, 2))]
        for layer, part in zip(layers, plain[::2], strict=True):
            layer.kernel[...] = jnp.asarray(as_in_flax(part))
            layer.bias[...] = jnp.asarray(part.bias.detach().numpy())
        net = nnx.Sequential(layers[0], jax.nn.relu, layers[1])
        numpyro_moments.initialise_from_statistics(net, jnp.asarray(MEAN), jnp.asarray(VARIANCE))
        pyro_moments.initialise_from_statistics(plain, *map(torch.as_tensor, (MEAN, VARIANCE)))
        for layer, part in zip(layers, plain[::2], strict=True):
            np.testing.assert_allclose(layer.kernel[...], as_in_flax(part), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(layer.bias[...], part.bias.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(), (12, 12)], ids=["pixel", "datum"])
def test_layers_of_both_hosts_are_initialised_alike(shape):
    plain, moments = in_torch(), (MEAN, VARIANCE)
    wide = [np.broadcast_to(part, (*shape, 2)) for part in moments]
    first = [torch.as_tensor(np.moveaxis(part, -1, 0).copy()) for part in wide]
    with jax.enable_x64(True):
        net = in_flax(plain)
        numpyro_moments.initialise_from_statistics(net, *map(jnp.asarray, wide))
        pyro_moments.initialise_from_statistics(plain, *first)
        parts = [part for part in plain if hasattr(part, "weight")]
        layers = [layer for layer in net.layers if hasattr(layer, "kernel")]
        for place, (part, layer) in enumerate(zip(parts, layers, strict=True)):
            near = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)
            near(layer.kernel[...], as_in_flax(part, place == 2))
            near(layer.bias[...], part.bias.detach())


def test_outputs_have_mean_zero_and_variance_one_over_draws():
    """Without overlapping windows and shared inputs moments are exact."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 2, 2, stride=2, groups=2), nn.ReLU(), nn.Conv2d(2, 3, 1))
    mean, variance = (torch.as_tensor(part).float() for part in (MEAN, VARIANCE))
    pyro_moments.initialise_from_statistics(net, mean, variance)
    noise = torch.randn(DRAWS, 2, 4, 4)
    x = mean[:, None, None] + variance.sqrt()[:, None, None] * noise
    with torch.no_grad():
        for outputs in (net[0](x), net(x)):
            centre, spread = outputs.mean((0, 2, 3)), outputs.std((0, 2, 3))
            assert (centre.abs() < 4 / (4 * DRAWS) ** 0.5).all()
            fourth = ((outputs - centre[:, None, None]) ** 4).mean((0, 2, 3)) / spread**4
            assert ((spread - 1).abs() < 2 * ((fourth - 1) / (4 * DRAWS)).sqrt()).all()


def test_a_layer_used_twice_is_changed_by_its_first_use():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.last(torch.relu(self.layer(torch.relu(self.layer(x)))))

    torch.manual_seed(0)
    net, mean, variance = Twice(), torch.full((3,), 0.5), torch.ones(3)
    pyro_moments.initialise_from_statistics(net, mean, variance)
    inputs = pyro_moments.Moments(mean[None], variance=variance[None])
    for function in (net.layer, net):
        found = pyro_moments.propagate(function, inputs)
        torch.testing.assert_close(found.mean, torch.zeros_like(found.mean), atol=1e-5, rtol=0)
        torch.testing.assert_close(found.variance, torch.ones_like(found.mean))
    assert "forward" not in vars(net.layer)


def test_normalised_outputs_and_gradients_agree():
    plain, x = in_torch(norm=True), np.random.default_rng(0).normal(size=(6, 2, 12, 12))
    mean, variance = torch.as_tensor(MEAN), torch.as_tensor(VARIANCE)

    def outputs(inputs):
        pyro_moments.propagate_statistics(plain, mean, variance)
        return plain(inputs)

    expected = outputs(torch.as_tensor(x))
    (expected**2).mean().backward()
    with jax.enable_x64(True):
        net = in_flax(plain, norm=True)

        def loss(net, x):
            numpyro_moments.propagate_statistics(net, jnp.asarray(MEAN), jnp.asarray(VARIANCE))
            found = net(x)
            return (found**2).mean(), found

        slope, found = nnx.jit(nnx.grad(loss, has_aux=True))(net, x.transpose(0, 2, 3, 1))
        np.testing.assert_allclose(found, expected.detach(), rtol=1e-10, atol=1e-12)
        again = net(x.transpose(0, 2, 3, 1))  # the statistics stay, without a pass
        np.testing.assert_allclose(again, found, rtol=1e-12)
        first = plain[0].weight.grad.numpy().transpose(2, 3, 1, 0)
        np.testing.assert_allclose(slope["layers"][0]["kernel"][...], first, rtol=1e-8, atol=1e-12)


def test_gradients_go_through_the_statistics():
    torch.manual_seed(0)
    layer, norm = nn.Linear(2, 3).double(), pyro_moments.AnalyticNorm(3, 0.0, affine=False)
    net, ones = nn.Sequential(layer, norm), torch.ones(2).double()

    def outputs(weight):
        layer._parameters["weight"] = weight
        pyro_moments.propagate_statistics(net, ones, ones)
        return net(torch.tensor([[1.0, 2.0]]).double())

    weight = torch.rand(3, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(outputs, weight)
    layer._parameters["bias"] = None
    scaled = outputs(2 * weight)
    torch.testing.assert_close(outputs(weight), scaled)


def test_normalisation_takes_uncertain_inputs():
    net = nn.Sequential(nn.Linear(2, 2), pyro_moments.AnalyticNorm(2, eps=0.0))
    mean, variance = torch.tensor([0.5, 1.0]), torch.tensor([2.0, 3.0])
    pyro_moments.propagate_statistics(net, mean, variance)
    inputs = pyro_moments.Moments(mean[None], variance=variance[None])
    found = pyro_moments.propagate(net, inputs)
    torch.testing.assert_close(found.mean, torch.zeros(1, 2), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.variance, torch.ones(1, 2))


def mistakes():
    ones, zeros = torch.ones(2), torch.zeros(2)
    linear, initialise = nn.Linear(2, 2), pyro_moments.initialise_from_statistics
    yield (
        r"layer '0' has no bias.*bias=True",
        lambda: initialise(nn.Sequential(nn.Linear(2, 2, bias=False)), zeros, ones),
    )
    yield r"variance of channel 0, 1 of layer ''", lambda: initialise(linear, zeros, zeros)
    yield "call propagate_statistics", lambda: pyro_moments.AnalyticNorm(2)(torch.ones(1, 2))
    functional = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(7, 2))
    yield "a single pixel, which has 3 channels", lambda: initialise(functional, zeros, ones)
    rngs, there = nnx.Rngs(0), numpyro_moments.initialise_from_statistics
    plain = nnx.Linear(2, 2, use_bias=False, rngs=rngs)
    yield "has no bias.*use_bias=True", lambda: there(plain, jnp.zeros(2), jnp.ones(2))
    layer = nnx.Linear(2, 2, rngs=rngs)
    yield r"variance of channel 0, 1", lambda: there(layer, jnp.zeros(2), jnp.zeros(2))
    norm = numpyro_moments.AnalyticNorm(2)
    yield "call propagate_statistics", lambda: norm(jnp.ones((1, 2)))
    pool = lambda h: nnx.max_pool(h, (2, 2), (2, 2))  # noqa: E731
    pooled = nnx.Sequential(
        nnx.Conv(2, 2, (3, 3), rngs=rngs), pool, nnx.Conv(2, 2, (1, 1), rngs=rngs)
    )
    yield "does not go through a pool", lambda: there(pooled, jnp.zeros(2), jnp.ones(2))


@pytest.mark.parametrize("place", range(8))
def test_mistakes_are_named(place):
    text, call = [*mistakes()][place]
    with pytest.raises(ValueError, match=text):
        call()


def test_a_pixel_meets_no_batch_normalisation_in_training():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(UnsupportedMoments):
        pyro_moments.propagate_statistics(net, torch.zeros(2), torch.ones(2))
