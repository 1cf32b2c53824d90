"""Networks, regressions and objectives of several benchmarks: functions of a host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

Prior = Callable[[Sequence[int]], Any]


def standard(host: Any) -> Prior:
    """The standard normal prior of a shape."""
    return lambda shape: host.dist.Normal(0.0, 1.0).expand(list(shape)).to_event(len(shape))


def scaled(host: Any) -> Prior:
    """Normal priors, those of matrices scaled by their number of inputs."""

    def prior(shape: Sequence[int]) -> Any:
        scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
        return host.dist.Normal(0.0, scale).expand(list(shape)).to_event(len(shape))

    return prior


def perceptron(
    host: Any, prior: Prior, sizes: Sequence[int], x: Any, activation: Callable | None = None
) -> Any:
    """The outputs of a fully connected network, with relu if no other activation is named."""
    for place, (inputs, units) in enumerate(itertools.pairwise(sizes)):
        x = (activation or host.relu)(x) if place else x
        weight = host.sample(f"weight{place}", prior([inputs, units]))
        x = x @ weight + host.sample(f"bias{place}", prior([units]))
    return x


# Input and output channels, size of the window and stride: Shekhovtsov et al. 2018, D.4
LENET = ((1, 32, 5, 2), (32, 64, 5, 2), (64, 50, 4, 1), (50, 10, 1, 1))


def convolutional(host: Any, layers: Sequence[Sequence[int]], x: Any) -> Any:
    """The outputs of convolutions with relu between, whose last images have one position."""
    for place, (inputs, outputs, size, stride) in enumerate(layers):
        x = host.relu(x) if place else x
        scale, shape = (inputs * size**2) ** -0.5, [outputs, inputs, size, size]
        normal = host.dist.Normal(0.0, scale).expand(shape).to_event(4)
        x = host.convolved(x, host.sample(f"weight{place}", normal), stride)
        x = x + host.sample(f"bias{place}", standard(host)([outputs, 1, 1]))
    return x[..., 0, 0]


def linear(host: Any) -> Callable[[Any], Any]:
    """A linear predictor with standard normal priors."""

    def predictor(x: Any) -> Any:
        weights = host.sample("weights", standard(host)([x.shape[1]]))
        return x @ weights + host.sample("bias", host.dist.Normal(0.0, 1.0))

    return predictor


def hierarchy(host: Any, groups: int, mean_scale: float, positive: Any) -> Callable:
    """A common slope, and intercepts of groups; ``positive`` is the prior of both scales."""
    sample, normal = host.sample, host.dist.Normal

    def model(x: Any, group: Any, y: Any = None) -> None:
        mean, spread = sample("mean", normal(0.0, mean_scale)), sample("spread", positive)
        slope, scale = sample("slope", normal(0.0, 1.0)), sample("scale", positive)
        with host.plate("group", groups):
            intercept = sample("intercept", normal(mean, spread))
        with host.plate("data", len(x)):
            sample("obs", normal(intercept[group] + slope * x, scale), obs=y)

    return model


def regression_by(host: Any, mean: Callable[[Any], Any], noise: Any = None) -> Callable:
    """Regression with a noise of unknown scale, by default half-normal.

    Args:
        host: of the model.
        mean: of the outcomes, by covariates.
        noise: prior of the scale.
    """
    noise = noise or host.dist.HalfNormal(1.0)

    def model(x: Any, y: Any = None) -> None:
        loc = mean(x)
        scale = host.sample("scale", noise)
        with host.plate("data", len(x)):
            host.sample("obs", host.dist.Normal(loc, scale), obs=y)

    return model


def network_regression(host: Any, hidden: int) -> Callable:
    """Regression by one hidden layer of relus, with standard normal priors."""

    def mean(x: Any) -> Any:
        return perceptron(host, standard(host), (x.shape[-1], hidden, 1), x)[..., 0]

    return regression_by(host, mean)


def observed(host: Any, network: Callable, likelihood: Callable[[Any], Any]) -> Callable:
    """A network whose outputs parametrise the distribution of every observation.

    Args:
        host: of the model.
        network: outputs by inputs.
        likelihood: distribution of the observations, given the outputs.
    """

    def model(x: Any, y: Any = None) -> Any:
        outputs = network(x)
        with host.plate("data", len(x)):
            return host.sample("obs", likelihood(outputs), obs=y)

    return model


def regression(host: Any, network: Callable) -> Callable:
    return observed(host, network, lambda f: host.dist.Normal(f[..., 0], 0.5))


def two_heads(host: Any, network: Callable) -> Callable:
    """Heteroscedastic regression: the network has a mean and a log variance."""
    return observed(
        host, network, lambda f: host.dist.Normal(f[..., 0], host.np.exp(0.5 * f[..., 1]))
    )


def classification(host: Any, network: Callable) -> Callable:
    return observed(host, network, lambda f: host.dist.Categorical(logits=f))


def reference(host: Any, name: str) -> tuple[Any, Callable]:
    """The sampled objective and the guide that a name says.

    Args:
        host: of both.
        name: such as "TraceMeanField_ELBO + AutoNormal".
    """
    elbo, guide = name.split(" + ")
    guides = host.package if guide == "DVIGuide" else host.infer.autoguide
    return getattr(host.infer, elbo)(), getattr(guides, guide)


def closed_form(host: Any, covariance: str, compiled: bool = False) -> tuple[Any, Callable]:
    """The objective in closed form, which Pyro can compile, and its guide."""
    options = {"compiled": True} if compiled else {}
    elbo = host.package.DeterministicELBO(covariance=covariance, **options)
    return elbo, host.package.DVIGuide
