"""Models of many kinds that users write, each for both hosts, with few data."""

import numpy as np

rng = np.random.default_rng(3)
GROUPS, ROWS = 3, 9
GROUP = np.repeat(np.arange(GROUPS), ROWS // GROUPS)
X = rng.normal(size=ROWS)
ETA = 0.5 + 0.6 * X + np.array([-0.5, 0.0, 0.6])[GROUP]
COUNTS = 1.0 * rng.poisson(np.exp(ETA))
LEVELS = ETA + 0.5 * rng.normal(size=ROWS)
CLASSES = np.digitize(LEVELS, [0.0, 1.0])
TRIALS = np.array([3.0, 5, 1, 8, 2, 4, 6, 2, 3])
HITS = 1.0 * rng.binomial(TRIALS.astype(int), 1 / (1 + np.exp(-ETA)))


def effects(host, x):
    """A predictor with a slope, and intercepts of groups whose spread is unknown."""
    dist, sample = host.dist, host.language.sample
    spread = sample("spread", dist.HalfNormal(0.7))
    level, slope = sample("level", dist.Normal(0.0, 1.0)), sample("slope", dist.Normal(0.0, 0.5))
    with host.language.plate("groups", GROUPS):
        effect = sample("effect", dist.Normal(0.0, spread))
    return level + slope * x + effect[..., GROUP]


def observed(host, fn, y, name="y", size=ROWS):
    """Rows of data under a plate."""
    with host.language.plate("rows of " + name, size):
        return host.language.sample(name, fn, obs=y)


def zero_sum(host, x, y):
    dist, sample = host.dist, host.language.sample
    spread = sample("spread", dist.HalfNormal(0.7))
    effect = sample("effect", dist.ZeroSumNormal(spread, (GROUPS,)))
    observed(host, dist.Poisson(host.np.exp(0.5 + 0.6 * x + effect[..., GROUP])), y)


def walk(host, x, y):
    dist, sample = host.dist, host.language.sample
    step = sample("step", dist.HalfNormal(0.4))
    path = sample("path", dist.GaussianRandomWalk(step, ROWS))
    observed(host, dist.Poisson(host.np.exp(path)), y)


def slopes(host, x, y):
    dist, sample = host.dist, host.language.sample
    scales = sample("scales", dist.HalfNormal(0.5).expand([2]).to_event(1))
    factor = sample("factor", dist.LKJCholesky(2, concentration=2.0))
    zero = host.np.zeros(2)
    with host.language.plate("groups", GROUPS):
        effect = sample(
            "effect", dist.MultivariateNormal(zero, scale_tril=scales[..., None] * factor)
        )
    at = effect[..., GROUP, :]
    observed(host, dist.Poisson(host.np.exp(0.5 + at[..., 0] + at[..., 1] * x)), y)


def reparametrised(host, x, y):
    if host.name == "numpyro":
        from numpyro.infer.reparam import LocScaleReparam
    else:
        from pyro.infer.reparam import LocScaleReparam

    def model():
        return effects(host, x)

    eta = host.handlers.reparam(model, config={"effect": LocScaleReparam(0.0)})()
    observed(host, host.dist.Poisson(host.np.exp(eta)), y)


def transformed(host, x, y):
    dist, sample = host.dist, host.language.sample
    if host.name == "numpyro":
        from numpyro.infer.reparam import TransformReparam
    else:
        from pyro.infer.reparam import TransformReparam
    transforms = dist.transforms
    spread = sample("spread", dist.HalfNormal(0.7))

    def model():
        affine = transforms.AffineTransform(0.3, spread)
        base = dist.Normal(host.np.zeros(GROUPS), 1.0)
        fn = dist.TransformedDistribution(base, [affine])
        with host.language.plate("groups", GROUPS):
            return sample("effect", fn)

    effect = host.handlers.reparam(model, config={"effect": TransformReparam()})()
    observed(host, dist.Poisson(host.np.exp(effect[..., GROUP])), y)


def masked(host, x, y):
    seen = host.array(np.arange(ROWS) % 3 != 1)
    eta = effects(host, x)
    filled = host.np.where(seen, y, host.np.zeros(ROWS))
    with host.handlers.mask(mask=seen), host.handlers.scale(scale=0.5):
        observed(host, host.dist.Poisson(host.np.exp(eta)), filled)


def several(host, x, y):
    """Two kinds of observations, an exposure, and what follows from both."""
    eta = effects(host, x)
    host.language.deterministic("rate", host.np.exp(eta))
    noise = host.language.sample("noise", host.dist.HalfNormal(0.5))
    observed(host, host.dist.Poisson(2.0 * host.np.exp(eta)), y)
    observed(host, host.dist.Normal(eta[..., :4], noise), host.array(LEVELS[:4]), "z", 4)


def imputed(host, x, y):
    """A covariate with a missing value, and an observation that is one."""
    dist, sample = host.dist, host.language.sample
    slope, noise = sample("slope", dist.Normal(0.5, 0.5)), sample("noise", dist.HalfNormal(0.5))
    missing = sample("missing", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    whole = host.np.concatenate([x[2:], missing], -1)
    unseen = sample("unseen", dist.Normal(0.5 + slope * x[0], noise))
    observed(host, dist.Normal(0.5 + slope * whole + 0 * unseen, noise), y)


def inflated(host, x, y):
    eta, gate = effects(host, x), host.language.sample("gate", host.dist.Beta(2.0, 5.0))
    observed(host, host.dist.ZeroInflatedPoisson(gate=gate, rate=host.np.exp(eta)), y)


def binomial(host, x, y):
    fn = host.dist.Binomial(total_count=host.array(TRIALS), logits=effects(host, x))
    observed(host, fn, y)


def ordered(host, x, y):
    dist, sample = host.dist, host.language.sample
    transform = dist.transforms.OrderedTransform()
    base = dist.Normal(host.np.zeros(2), 1.0).to_event(1)
    cutpoints = sample("cutpoints", dist.TransformedDistribution(base, [transform]))
    with host.language.plate("groups", GROUPS):
        effect = sample("effect", dist.Normal(0.0, 0.8))
    observed(host, dist.OrderedLogistic(0.6 * x + effect[..., GROUP], cutpoints), y)


def gamma_poisson(host, x, y):
    observed(host, host.dist.Poisson(host.language.sample("rate", host.dist.Gamma(2.0, 1.0))), y)


def regression_alone(host, x, y):
    dist, sample = host.dist, host.language.sample
    noise = sample("noise", dist.HalfNormal(1.0))
    logit = sample("share", dist.Beta(2.0, 2.0))
    observed(host, dist.Normal(logit * x, noise), y)


def field_alone(host, x, y):
    dist, sample = host.dist, host.language.sample
    level, slope = sample("level", dist.Normal(0.0, 1.0)), sample("slope", dist.Normal(0.0, 0.5))
    observed(host, dist.Poisson(host.np.exp(level + slope * x)), y)


def shape_by_its_log(host, x, y):
    """A real number in the likelihood beside the predictor."""
    log = host.language.sample("log_shape", host.dist.Normal(0.0, 0.7))
    shape, rate = host.np.exp(log), host.np.exp(effects(host, x))
    observed(host, host.dist.GammaPoisson(shape, shape / rate), y)


def plain(host, x, y):
    observed(host, host.dist.Poisson(host.np.exp(effects(host, x))), y)


BOTH = ["numpyro", "pyro"]
KINDS = {
    zero_sum: (["numpyro"], COUNTS),
    walk: (["numpyro"], COUNTS),
    slopes: (BOTH, COUNTS),
    reparametrised: (BOTH, COUNTS),
    transformed: (BOTH, COUNTS),
    masked: (BOTH, COUNTS),
    several: (BOTH, COUNTS),
    imputed: (BOTH, LEVELS),
    inflated: (BOTH, COUNTS * (np.arange(ROWS) % 4 != 0)),
    binomial: (BOTH, HITS),
    ordered: (BOTH, CLASSES),
    gamma_poisson: (BOTH, COUNTS),
    regression_alone: (BOTH, LEVELS),
    field_alone: (BOTH, COUNTS),
    shape_by_its_log: (BOTH, COUNTS),
    plain: (BOTH, COUNTS),
}
