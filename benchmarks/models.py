"""Networks, regressions and objectives of several benchmarks: functions of a host."""

import itertools

import numpy as np


def standard(host):
    """The standard normal prior of a shape."""
    return lambda shape: host.dist.Normal(0.0, 1.0).expand(list(shape)).to_event(len(shape))


def scaled(host):
    """Normal priors, those of matrices scaled by their number of inputs."""

    def prior(shape):
        scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
        return host.dist.Normal(0.0, scale).expand(list(shape)).to_event(len(shape))

    return prior


def perceptron(host, prior, sizes, x, activation=None):
    """The outputs of a fully connected network, with relu if no other activation is named."""
    for place, (inputs, units) in enumerate(itertools.pairwise(sizes)):
        x = (activation or host.relu)(x) if place else x
        weight = host.sample(f"weight{place}", prior([inputs, units]))
        x = x @ weight + host.sample(f"bias{place}", prior([units]))
    return x


# Input and output channels, size of the window and stride: Shekhovtsov et al. 2018, D.4
LENET = ((1, 32, 5, 2), (32, 64, 5, 2), (64, 50, 4, 1), (50, 10, 1, 1))


def convolutional(host, layers, x):
    """The outputs of convolutions with relu between, whose last images have one position."""
    for place, (inputs, outputs, size, stride) in enumerate(layers):
        x = host.relu(x) if place else x
        scale, shape = (inputs * size**2) ** -0.5, [outputs, inputs, size, size]
        normal = host.dist.Normal(0.0, scale).expand(shape).to_event(4)
        x = host.convolved(x, host.sample(f"weight{place}", normal), stride)
        x = x + host.sample(f"bias{place}", standard(host)([outputs, 1, 1]))
    return x[..., 0, 0]


def linear(host):
    """A linear predictor with standard normal priors."""

    def predictor(x):
        weights = host.sample("weights", standard(host)([x.shape[1]]))
        return x @ weights + host.sample("bias", host.dist.Normal(0.0, 1.0))

    return predictor


def hierarchy(host, groups, mean_scale, positive):
    """A common slope, and intercepts of groups; ``positive`` is the prior of both scales."""
    sample, normal = host.sample, host.dist.Normal

    def model(x, group, y=None):
        mean, spread = sample("mean", normal(0.0, mean_scale)), sample("spread", positive)
        slope, scale = sample("slope", normal(0.0, 1.0)), sample("scale", positive)
        with host.plate("group", groups):
            intercept = sample("intercept", normal(mean, spread))
        with host.plate("data", len(x)):
            sample("obs", normal(intercept[group] + slope * x, scale), obs=y)

    return model


def regression_by(host, mean, noise=None):
    """Regression on a mean by covariates; its scale has a prior, by default half-normal."""
    noise = noise or host.dist.HalfNormal(1.0)

    def model(x, y=None):
        loc = mean(x)
        scale = host.sample("scale", noise)
        with host.plate("data", len(x)):
            host.sample("obs", host.dist.Normal(loc, scale), obs=y)

    return model


def network_regression(host, hidden):
    """Regression by one hidden layer of relus, with standard normal priors."""

    def mean(x):
        return perceptron(host, standard(host), (x.shape[-1], hidden, 1), x)[..., 0]

    return regression_by(host, mean)


def observed(host, network, family, noise=0.5, cuts=(-1.0, 1.0), head=lambda f: f[..., 0]):
    """A network whose outputs parametrise the distribution of every observation.

    Args:
        host: of the model.
        network: outputs by inputs.
        family: of the likelihood, one of those below.
        noise: scale of a Normal or a Student distribution.
        cuts: between the grades of an ordinal likelihood.
        head: takes the one number that most families need from the outputs.
    """
    dist, exp, cuts = host.dist, host.np.exp, host.array(cuts)
    of_all = {
        "heteroscedastic": lambda f: dist.Normal(f[..., 0], exp(0.5 * f[..., 1])),
        "Categorical": lambda f: dist.Categorical(logits=f),
    }
    of_one = {
        "Normal": lambda f: dist.Normal(f, noise),
        "StudentT": lambda f: dist.StudentT(4.0, f, noise),
        "Bernoulli": lambda f: dist.Bernoulli(logits=f),
        "ordinal": lambda f: dist.OrderedLogistic(f, cuts),
        "Poisson": lambda f: dist.Poisson(exp(f)),
        "NegativeBinomial": lambda f: dist.NegativeBinomial(5.0, logits=f),
        "Gamma": lambda f: dist.Gamma(2.0, 2.0 * exp(-f)),
        "GammaPoisson": lambda f: dist.GammaPoisson(3.0, 3.0 * exp(-f)),
    }

    def model(x, y=None):
        outputs = network(x)
        with host.plate("data", len(x)):
            made = of_all[family](outputs) if family in of_all else of_one[family](head(outputs))
            return host.sample("obs", made, obs=y)

    return model


def contender(host, name):
    """An objective and its guide: the host's that a name such as "Trace_ELBO + AutoNormal" says, or
    the one in closed form with a covariance, which Pyro can compile, as in "full, compiled"."""
    objective, _, guide = name.partition(" + ")
    if guide:
        guides = host.package if guide == "DVIGuide" else host.infer.autoguide
        return getattr(host.infer, objective)(), getattr(guides, guide)
    covariance, _, compiled = name.partition(", ")
    options = {"covariance": covariance} | ({"compiled": True} if compiled else {})
    return host.package.DeterministicELBO(**options), host.package.DVIGuide


def steps(host, names, model, data, pair=contender):
    """Steps of contenders, each with the seconds of its compiling."""
    return {name: host.elbo_step(*pair(host, name), model, data) for name in names}


def images(host, rows, *shape):
    """Random images of ten classes."""
    generator = np.random.default_rng(0)
    x = generator.random((rows, *shape)).astype(np.float32)
    return host.array(x), host.array(generator.integers(10, size=rows))


def normals(host, rows, columns=13):
    """Standard normal inputs and outcomes."""
    return host.normal(0, rows, columns), host.normal(1, rows)
