"""Models whose sites depend on each other, little or strongly: functions of a host and of arrays.

Each has a function that simulates its data.
"""

import numpy as np


def standard(host, name, size):
    return host.sample(name, host.dist.Normal(0.0, 1.0).expand([size]).to_event(1))


def walk(host, data):
    level = host.sample("level", host.dist.Normal(0.0, 1.0))
    step = host.sample("step", host.dist.HalfNormal(0.5))
    moves = standard(host, "moves", len(data["count"]))
    log_rate = np.log(20.0) + level + host.np.cumsum(step * moves, -1)
    with host.plate("times", len(data["count"])):
        host.sample("count", host.dist.Poisson(host.np.exp(log_rate)), obs=data["count"])


def counts(random, size):
    log_rate = 0.03 + np.cumsum(0.1 * random.normal(size=size))
    return {"count": random.poisson(20 * np.exp(log_rate)).astype(float)}


def local_level(host, data):
    step = host.sample("step", host.dist.HalfNormal(1.0))
    noise = host.sample("noise", host.dist.HalfNormal(1.0))
    first = host.sample("first", host.dist.Normal(0.0, 1.0))
    moves = standard(host, "moves", len(data["y"]))
    level = first + host.np.cumsum(step * moves, -1)
    with host.plate("times", len(data["y"])):
        host.sample("y", host.dist.Normal(level, noise), obs=data["y"])


def levels(random, size):
    level = np.cumsum(0.2 * random.normal(size=size))
    return {"y": level + 0.5 * random.normal(size=size)}


def process(host, data):
    amplitude = host.sample("amplitude", host.dist.HalfNormal(2.0))
    moves = standard(host, "moves", len(data["y"]))
    logits = amplitude * (data["root"] @ moves)
    with host.plate("places", len(data["y"])):
        host.sample("y", host.dist.Bernoulli(logits=logits), obs=data["y"])


def labels(random, size):
    x = np.sort(random.uniform(-2, 2, size))
    kernel = np.exp(-0.5 * (x[:, None] - x) ** 2 / 0.25) + 1e-4 * np.eye(size)
    chance = 1 / (1 + np.exp(-3 * np.sin(2 * x)))
    return {"root": np.linalg.cholesky(kernel), "y": (random.random(size) < chance).astype(float)}


def hierarchy(host, data, count=8, centred=False, binary=False, heavy=False):
    mean = host.sample("mean", host.dist.Normal(0.0, 5.0))
    slope = host.sample("slope", host.dist.Normal(0.0, 5.0))
    spread = host.sample("spread", host.dist.HalfNormal(2.0))
    if centred:
        with host.plate("groups", count):
            effect = host.sample("effect", host.dist.Normal(mean, spread))
    else:
        effect = mean + spread * standard(host, "standard", count)
    line = effect[data["group"]] + slope * data["x"]
    if binary:
        noise = host.dist.Bernoulli(logits=line)
    else:
        scale = host.sample("scale", host.dist.HalfNormal(2.0))
        noise = host.dist.StudentT(4.0, line, scale) if heavy else host.dist.Normal(line, scale)
    with host.plate("data", len(data["y"])):
        host.sample("y", noise, obs=data["y"])


def groups(random, size, count=8, binary=False):
    x, group = random.normal(size=size), np.arange(size) % count
    line = 0.4 + random.normal(size=count)[group] + 1.2 * x
    y = line + 0.5 * random.normal(size=size)
    if binary:
        y = (random.random(size) < 1 / (1 + np.exp(-line))).astype(float)
    return {"x": x, "group": group, "y": y}


def regression(host, data, kind="Normal"):
    weight = standard(host, "weight", data["x"].shape[1])
    line = host.sample("intercept", host.dist.Normal(0.0, 2.5)) + data["x"] @ (2.5 * weight)
    if kind == "Normal":
        noise = host.dist.Normal(line, host.sample("scale", host.dist.HalfNormal(2.0)))
    elif kind == "Poisson":
        noise = host.dist.Poisson(host.np.exp(line))
    else:
        noise = host.dist.Bernoulli(logits=line)
    with host.plate("data", len(data["y"])):
        host.sample("y", noise, obs=data["y"])


def rows(random, size, kind="Normal", correlation=0.0):
    own, shared = random.normal(size=(size, 5)), random.normal(size=(size, 1))
    x = np.sqrt(1 - correlation) * own + np.sqrt(correlation) * shared
    line = x @ np.array([1.0, -1.0, 0.5, 0.0, 0.3])
    draws = {
        "Normal": lambda: line + 0.7 * random.normal(size=size),
        "Poisson": lambda: random.poisson(np.exp(0.5 * line)).astype(float),
        "Bernoulli": lambda: (random.random(size) < 1 / (1 + np.exp(-line))).astype(float),
    }
    return {"x": x, "y": draws[kind]()}


def horseshoe(host, data):
    overall = host.sample("overall", host.dist.HalfNormal(1.0))
    local = host.sample("local", host.dist.HalfCauchy(host.np.ones(10)).to_event(1))
    weight = overall * local * standard(host, "standard", 10)
    scale = host.sample("scale", host.dist.HalfNormal(1.0))
    with host.plate("data", len(data["y"])):
        host.sample("y", host.dist.Normal(data["x"] @ weight, scale), obs=data["y"])


def sparse(random, size):
    x = random.normal(size=(size, 10))
    return {"x": x, "y": 2 * x[:, 0] - x[:, 1] + random.normal(size=size)}


def slopes(host, data):
    means, spreads = standard(host, "means", 2), []
    for name in ("spread of levels", "spread of slopes"):
        spreads.append(host.sample(name, host.dist.HalfNormal(1.0)))
    lean = host.sample("lean", host.dist.Normal(0.0, 1.0))
    scale = host.sample("scale", host.dist.HalfNormal(1.0))
    first, second = (standard(host, name, 12) for name in ("levels", "slopes"))
    level = means[0] + spreads[0] * first[data["group"]]
    slope = means[1] + spreads[1] * (lean * first[data["group"]] + second[data["group"]])
    with host.plate("data", len(data["y"])):
        host.sample("y", host.dist.Normal(level + slope * data["x"], scale), obs=data["y"])


def lines(random, size):
    x, group = random.normal(size=size), np.arange(size) % 12
    pairs = random.multivariate_normal([0.5, 1.0], [[0.6, 0.25], [0.25, 0.4]], size=12)
    y = pairs[group, 0] + pairs[group, 1] * x + 0.5 * random.normal(size=size)
    return {"x": x, "group": group, "y": y}


def funnel(host, data):
    log_variance = host.sample("log variance", host.dist.Normal(0.0, 3.0))
    scale = host.np.exp(log_variance / 2)
    with host.plate("places", 9):
        host.sample("place", host.dist.Normal(0.0, scale))


MODELS = {
    **{f"walk of {n} counts": (walk, {}, counts, (n,), {}) for n in (15, 30, 60)},
    **{f"local level of {n}": (local_level, {}, levels, (n,), {}) for n in (14, 40)},
    **{f"Gaussian process of {n} labels": (process, {}, labels, (n,), {}) for n in (14, 40)},
    "hierarchy, not centred": (hierarchy, {}, groups, (200,), {}),
    "hierarchy, centred": (hierarchy, {"centred": True}, groups, (200,), {}),
    "hierarchy, heavy tails": (hierarchy, {"centred": True, "heavy": True}, groups, (200,), {}),
    "hierarchy of few rows, not centred": (hierarchy, {}, groups, (40,), {}),
    "hierarchy of few rows, centred": (hierarchy, {"centred": True}, groups, (40,), {}),
    "hierarchy of labels": (
        hierarchy,
        {"count": 15, "binary": True},
        groups,
        (300,),
        {"count": 15, "binary": True},
    ),
    **{
        f"{kind} regression{', collinear' if correlation else ''}": (
            regression,
            {"kind": kind},
            rows,
            (300,),
            {"kind": kind, "correlation": correlation},
        )
        for kind in ("Normal", "Poisson", "Bernoulli")
        for correlation in (0.0, 0.95)
    },
    "horseshoe regression": (horseshoe, {}, sparse, (100,), {}),
    "varying slopes": (slopes, {}, lines, (240,), {}),
    "funnel": (funnel, {}, lambda random: {}, (), {}),
}


def model_and_data(name):
    """A model of host and arrays by its name, and its data."""
    model, options, simulate, sizes, settings = MODELS[name]
    data = simulate(np.random.default_rng(0), *sizes, **settings)
    return lambda host, arrays: model(host, arrays, **options), data
