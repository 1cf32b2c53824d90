"""Models of posteriordb, as their Stan programs say: functions of a host and of its arrays.

Source: Magnusson et al., posteriordb (github.com/stan-dev/posteriordb).
"""

import re
from types import SimpleNamespace

import numpy as np

JITTER = 1e-10
HALF_CAUCHY = ("HalfCauchy", 2.5)
WORDS = {  # of the formulas below
    "log": np.log,
    "log10": np.log10,
    "c": lambda column: column - column.mean(),
    "z": lambda column: (column - column.mean()) / column.std(ddof=1),
    "levels": lambda column: [(column == level).astype(float) for level in (2, 3, 4)],
}


def design(x, y, beta=None, sigma=None, intercept=None, names=()):
    """y ~ Normal(Xβ, σ), or with an intercept of its own for Stan's centred form.

    Args:
        x: covariates [n, k].
        y: outcome [n].
        beta: mean and standard deviation of the coefficients' prior, each a number or [k]; None if
            it is flat.
        sigma: prior of the noise: a name and a scale; None if it is flat.
        intercept: degrees of freedom, location and scale of its Student prior, if it is a site of
            its own.
        names: the reference's names of the coefficients.
    """
    names = names or tuple(f"beta[{i + 1}]" for i in range(x.shape[1]))
    return SimpleNamespace(x=x, y=y, beta=beta, sigma=sigma, intercept=intercept, names=names)


def with_ones(y, columns, **priors):
    """Covariates after a column of ones."""
    return design(np.stack([np.ones_like(y), *columns], axis=1), y, **priors)


def autoregression(data):
    y, order = data["y"], int(data["K"])
    lagged = [y[order - k - 1 : len(y) - k - 1] for k in range(order)]
    names = ("alpha", *(f"beta[{k + 1}]" for k in range(order)))
    return with_ones(y[order:], lagged, beta=(0.0, 10.0), sigma=HALF_CAUCHY, names=names)


def diamonds(data):
    x = data["X"][:, 1:]
    names = tuple(f"b[{i + 1}]" for i in range(x.shape[1]))
    priors = (0.0, 1.0), ("HalfStudent", 10.0), (3.0, 8.0, 10.0)
    return design(x - x.mean(0), data["Y"], *priors, names)


def kilpisjarvi(data):
    prior = [np.array([data[f"{what}alpha"], data[f"{what}beta"]]) for what in ("pmu", "ps")]
    return with_ones(data["y"], [data["x"]], beta=tuple(prior), names=("alpha", "beta"))


OWN = {
    "arK-arK": autoregression,
    "diamonds-diamonds": diamonds,
    "kilpisjarvi_mod-kilpisjarvi": kilpisjarvi,
    "sblrc-blr": lambda data: design(data["X"], data["y"], (0.0, 10.0), ("HalfNormal", 10.0)),
}
BUSHES = "diam1, diam2, canopy_height, total_height, density, group"
LOGS = re.sub(r"(\w+),", r"log(\1),", BUSHES)
VOLUMES = "log(diam1 * diam2 * canopy_height), log(diam1 * diam2), log(diam1 / diam2)"
CENTRED = "c(mom_hs), c(mom_iq), c(mom_hs) * c(mom_iq)"
AT_REFERENCE = "mom_hs - 0.5, mom_iq - 100, (mom_hs - 0.5) * (mom_iq - 100)"
PARTY = "real_ideo, race_adj, *levels(age_discrete), educ1, gender, income"
FORMULAS = {
    "earnings-earn_height": "earn ~ height",
    "earnings-log10earn_height": "log10(earn) ~ height",
    "earnings-logearn_height": "log(earn) ~ height",
    "earnings-logearn_height_male": "log(earn) ~ height, male",
    "earnings-logearn_interaction_z": "log(earn) ~ z(height), male, z(height) * male",
    "earnings-logearn_logheight_male": "log(earn) ~ log(height), male",
    "kidiq-kidscore_interaction": "kid_score ~ mom_hs, mom_iq, mom_hs * mom_iq",
    "kidiq-kidscore_momhs": "kid_score ~ mom_hs",
    "kidiq-kidscore_momhsiq": "kid_score ~ mom_hs, mom_iq",
    "kidiq_with_mom_work-kidscore_interaction_c": f"kid_score ~ {CENTRED}",
    "kidiq_with_mom_work-kidscore_interaction_c2": f"kid_score ~ {AT_REFERENCE}",
    "kidiq_with_mom_work-kidscore_mom_work": "kid_score ~ *levels(mom_work)",
    "mesquite-logmesquite": f"log(weight) ~ {LOGS}",
    "mesquite-logmesquite_logvas": (
        f"log(weight) ~ {VOLUMES}, log(total_height), log(density), group"
    ),
    "mesquite-logmesquite_logvash": f"log(weight) ~ {VOLUMES}, log(total_height), group",
    "mesquite-mesquite": f"weight ~ {BUSHES}",
    **{f"nes{year}-nes": f"partyid7 ~ {PARTY}" for year in (1972, 1976, 1980, 1984, 1988, 2000)},
}
DESIGNS = (*OWN, *FORMULAS)


def design_of(name, data):
    """The design of a posterior; of a formula with a noise that is flat, but for one set."""
    if name in OWN:
        return OWN[name](data)
    outcome, columns = (eval(f"[{side}]", WORDS | data) for side in FORMULAS[name].split(" ~ "))
    sigma = HALF_CAUCHY if name.startswith("kidiq-") else None
    return with_ones(*outcome, columns, sigma=sigma)


EIGHT_SCHOOLS = "eight_schools-eight_schools_noncentered"


def positive(host, prior):
    """The prior of a noise."""
    if prior is None:
        return host.dist.ImproperUniform(host.dist.constraints.positive, (), ())
    name, scale = prior
    if name == "HalfStudent":
        return host.dist.FoldedDistribution(host.dist.StudentT(3.0, 0.0, scale))
    return getattr(host.dist, name)(scale)


def regression(design, host, data):
    size = design.x.shape[1]
    if design.beta is None:
        prior = host.dist.ImproperUniform(host.dist.constraints.real_vector, (), (size,))
    else:
        loc, scale = (host.array(np.full(size, part, float)) for part in design.beta)
        prior = host.dist.Normal(loc, scale).to_event(1)
    predictor = data["x"] @ host.sample("beta", prior)
    if design.intercept is not None:
        predictor = predictor + host.sample("intercept", host.dist.StudentT(*design.intercept))
    sigma = host.sample("sigma", positive(host, design.sigma))
    with host.plate("data", len(data["y"])):
        host.sample("y", host.dist.Normal(predictor, sigma), obs=data["y"])


def eight_schools(host, data):
    mu = host.sample("mu", host.dist.Normal(0.0, 5.0))
    tau = host.sample("tau", host.dist.HalfCauchy(5.0))
    with host.plate("schools", len(data["y"])):
        standard = host.sample("theta_trans", host.dist.Normal(0.0, 1.0))
        host.sample("y", host.dist.Normal(mu + tau * standard, data["sigma"]), obs=data["y"])


def flat(host, name, support, prior):
    """A site whose prior is cut off by its support: flat there, and the density a factor.

    Both hosts' guides and samplers take it so; its constant is none of the posterior.
    """
    value = host.sample(name, host.dist.ImproperUniform(support, (), prior.event_shape))
    host.factor(f"{name}_prior", prior.log_prob(value))
    return value


def arma(host, data):
    sample, dist, y = host.sample, host.dist, data["y"]
    mu = sample("mu", dist.Normal(0.0, 10.0))
    phi = sample("phi", dist.Normal(0.0, 2.0))
    theta = sample("theta", dist.Normal(0.0, 2.0))
    sigma = sample("sigma", dist.HalfCauchy(2.5))

    def step(error, pair):
        before, now = pair
        prediction = mu + phi * before + theta * error
        return now - prediction, prediction

    first = mu + phi * mu
    _, others = host.scan(step, y[0] - first, (y[:-1], y[1:]))
    predictions = host.np.concatenate([first[None], others])
    with host.plate("data", len(y)):
        sample("y", dist.Normal(predictions, sigma), obs=y)


def garch(host, data):
    sample, dist, y, first = host.sample, host.dist, data["y"], data["sigma1"] ** 2
    mu = sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    alpha0 = sample("alpha0", dist.ImproperUniform(dist.constraints.positive, (), ()))
    # Stan's flat prior on the triangle α₁ + β₁ < 1, by β₁ = share (1 − α₁)
    alpha1 = sample("alpha1", dist.Beta(1.0, 2.0))
    beta1 = sample("share", dist.Uniform(0.0, 1.0)) * (1 - alpha1)

    def step(variance, before):
        variance = alpha0 + alpha1 * (before - mu) ** 2 + beta1 * variance
        return variance, variance

    _, others = host.scan(step, first, y[:-1])
    variances = host.np.concatenate([first[None], others])
    with host.plate("data", len(y)):
        sample("y", dist.Normal(mu, host.np.sqrt(variances)), obs=y)


def drives(host, data):
    """A hidden Markov model of two states, by its forward algorithm."""
    sample, dist, numerics = host.sample, host.dist, host.np
    rows = [sample(f"theta{k + 1}", dist.Dirichlet(data["alpha"][k])) for k in range(2)]
    log_theta = numerics.log(numerics.stack(rows))
    ordered = dist.constraints.positive_ordered_vector
    prior = dist.Normal(host.array(np.array([0.0, 3.0])), 1.0).to_event(1)
    phi, rate = (flat(host, name, ordered, prior) for name in ("phi", "lambda"))
    emitted = dist.Exponential(phi).log_prob(data["u"][:, None])
    emitted = emitted + dist.Exponential(rate).log_prob(data["v"][:, None])

    def step(gamma, now):
        moved = gamma[:, None] + log_theta
        gamma = numerics.logaddexp(moved[0], moved[1]) + now
        return gamma, gamma

    gamma, _ = host.scan(step, emitted[0], emitted[1:])
    host.factor("observed", numerics.logaddexp(gamma[0], gamma[1]))


def covariance(np, x, rho, alpha):
    """Squared exponential."""
    return alpha**2 * np.exp(-0.5 * ((x[:, None] - x) / rho) ** 2)


def poisson_process(host, data):
    sample, dist, x = host.sample, host.dist, data["x"]
    rho = sample("rho", dist.Gamma(25.0, 4.0))
    alpha = sample("alpha", dist.HalfNormal(2.0))
    standard = sample("f_tilde", dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    matrix = covariance(host.np, x, rho, alpha) + JITTER * host.np.eye(len(x))
    f = host.np.linalg.cholesky(matrix) @ standard
    with host.plate("data", len(x)):
        sample("k", dist.Poisson(host.np.exp(f)), obs=data["k"])


def gaussian_process(host, data):
    sample, dist, x = host.sample, host.dist, data["x"]
    rho = sample("rho", dist.Gamma(25.0, 4.0))
    alpha = sample("alpha", dist.HalfNormal(2.0))
    sigma = sample("sigma", dist.HalfNormal(1.0))
    matrix = covariance(host.np, x, rho, alpha) + sigma * host.np.eye(len(x))
    sample("y", dist.MultivariateNormal(0.0 * x, covariance_matrix=matrix), obs=data["y"])


def mixture(host, data):
    sample, dist, y = host.sample, host.dist, data["y"]
    prior = dist.Normal(0.0 * y[:2], 2.0).to_event(1)
    mu = flat(host, "mu", dist.constraints.ordered_vector, prior)
    sigma = sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = sample("theta", dist.Beta(5.0, 5.0))
    weights = dist.Categorical(probs=host.np.stack([theta, 1 - theta]))
    with host.plate("data", len(y)):
        sample("y", dist.MixtureSameFamily(weights, dist.Normal(mu, sigma)), obs=y)


def schools(data, draws):
    theta = draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_trans"]
    return {"theta": theta, "mu": draws["mu"], "tau": draws["tau"]}


def process(data, draws):
    rho, alpha = (draws[name][:, None, None] for name in ("rho", "alpha"))
    matrix = covariance(np, data["x"], rho, alpha)
    root = np.linalg.cholesky(matrix + JITTER * np.eye(matrix.shape[-1]))
    return {**draws, "f": (root @ draws["f_tilde"][..., None])[..., 0]}


def coefficients(design, data, draws):
    named = dict(zip(design.names, np.moveaxis(draws["beta"], -1, 0), strict=True))
    own = {} if design.intercept is None else {"Intercept": draws["intercept"]}
    return {**named, **own, "sigma": draws["sigma"]}


# The model, the parameters that are positive, by the names they have before an index, and Stan's
# parameters of the data and of draws of the sites.
KINDS = {
    EIGHT_SCHOOLS: (eight_schools, ("tau",), schools),
    "arma-arma11": (arma, ("sigma",)),
    "bball_drive_event_0-hmm_drive_0": (drives, ("phi", "lambda")),
    "garch-garch11": (
        garch,
        ("alpha0",),
        lambda data, draws: {**draws, "beta1": draws["share"] * (1 - draws["alpha1"])},
    ),
    "gp_pois_regr-gp_pois_regr": (poisson_process, ("rho", "alpha"), process),
    "gp_pois_regr-gp_regr": (gaussian_process, ("rho", "alpha", "sigma")),
    "low_dim_gauss_mix-low_dim_gauss_mix": (mixture, ("sigma",)),
}
