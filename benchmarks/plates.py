"""Thousands of latents in a plate: `GaussianGuide` with blocks or chains beside NUTS.

    JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 python benchmarks/plates.py --host numpyro \
        --out docs/experiments/plates.json

NumPyro's sampler draws 1000 after 500 of warm-up, once for both frameworks: run it first. Seconds
are those of a process, of the first call and, with other data, of the second. What is compared with
the draws are means, and standard deviations by linear response; of the item response, whose 40
shared coordinates meet all others, they are the guide's own.
"""

import json
from functools import partial

import harness
import numpy as np
from covariances import MEAN, SCALE, SHORT, SHORT_WARM_UP, written
from covariances_groups import hierarchy, item_response
from covariances_models import Case, observed, random


def levels(steps):
    """Counts whose logarithmic rate walks; the model states how levels differ."""
    generator = random(3)
    path = 1.0 + np.cumsum(0.1 * generator.normal(size=steps))
    counts = generator.poisson(np.exp(path)).astype(float)

    def make(host):
        dist = host.dist

        def model(y):
            step = host.sample("step", dist.HalfNormal(1.0))
            level = host.sample("level", dist.Normal(0.0, 10.0).expand([steps]).to_event(1))
            with host.plate("changes", steps - 1):
                change = dist.Normal(level[1:] - level[:-1], step)
                host.sample("change", change, obs=host.np.zeros(steps - 1))
            observed(host, dist.Poisson(host.np.exp(level)), y)

        return model

    return Case(make, (counts,))


ITEMS = "2PL item response, 600 persons, 20 items"
CASES = {
    "Poisson hierarchy, 2000 groups": partial(hierarchy, "Poisson", True, 8000, 2000),
    "Poisson walk, 2000 levels": partial(levels, 2000),
    ITEMS: partial(item_response, 600, 20),
}


def main(arguments=None):
    options = harness.parse(__doc__, arguments, "--host --only --out")
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for name in [name for name in CASES if options.only in name]:
        parts = results.setdefault(name, {})
        if options.host == "numpyro":
            (parts["nuts"],) = harness.in_processes(drawn, [(name,)])
        (found,) = harness.in_processes(fitted, [(options.host, name)])
        parts[options.host] = compared(found, parts.get("nuts", {}).get("sites", {}))
        if options.out:
            options.out.write_text(written(results))
        print(name, parts[options.host], flush=True)


def fitted(host_name, name):
    """Newton's method from a cold start, the response of scalars, and a second fit."""
    host, case = harness.load(host_name), CASES[name]()
    options = {"method": "newton", "float64": True, "by_draws": False, "progress_bar": False}
    with host.own_parameters(), host.doubles():
        *inputs, y = map(host.array, case.data)
        model = case.make(host)
        host.fresh()

        def train(y):
            return host.package.fit(model, host.package.GaussianGuide(), *inputs, y, **options)

        def respond():
            response = host.package.linear_response(model, fit, *inputs, y)
            sites = response.sites if name != ITEMS else [*response.sites][:0]
            return {site: np.ravel(response.standard_deviation(site)).tolist() for site in sites}

        fit, first = harness.clocked(lambda: train(y))
        deviations, responding = harness.clocked(respond)
        _, second = harness.clocked(lambda: train(1 - y if y.max() == 1 else y + 1))
        seconds = {"fit": first, "response": responding, "second fit": second}
        return {
            "loss": round(float(fit.loss), 6),
            "steps": int(fit.steps),
            "converged": bool(fit.converged),
            "shared": len(fit.guide.vector.shared),
            "blocks": [list(plate.places.shape) for plate in fit.guide.vector.plates],
            "seconds": {part: round(value, 2) for part, value in seconds.items()},
            "sites": moments(fit, [] if host.NAME == "Pyro" else [fit.params], deviations),
        }


def moments(fit, params, deviations):
    """The mean and the standard deviation of each coordinate, by site; given ones for its own."""
    posterior = fit.guide.get_posterior(*params)
    parts = posterior.mean, posterior.variance**0.5
    parts = [part.detach().numpy() if hasattr(part, "detach") else part for part in parts]
    places = fit.guide.vector.slices.items()
    own = {site: [np.asarray(part[place]).tolist() for part in parts] for site, place in places}
    return {site: [mean, deviations.get(site, scale)] for site, (mean, scale) in own.items()}


def drawn(name):
    """Seconds of one chain, with means and standard deviations on the unconstrained space."""
    host, case = harness.load("numpyro"), CASES[name]()
    with host.own_parameters(), host.doubles():
        data = tuple(map(host.array, case.data))
        settings = case.centred, 0.8, 1, SHORT_WARM_UP, SHORT
        draws, seconds = harness.clocked(
            lambda: host.unconstrained_draws(case.make(host), data, *settings)
        )
    flat = {site: values.reshape(SHORT, -1) for site, values in draws.items()}
    sites = {site: [rounded(part) for part in (v.mean(0), v.std(0))] for site, v in flat.items()}
    return {"seconds": round(seconds, 2), "sites": sites}


def rounded(values):
    return [float(f"{value:.3g}") for value in values]


def compared(found, sites):
    """What was found with shares of the effects that agree with NUTS in place of all moments."""
    ours = found.pop("sites")
    if not sites:
        return found
    rows = [(*map(np.array, ours[site]), *map(np.array, sites[site])) for site in ours]
    mean, deviation, expected, scale = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    ratio = deviation / scale
    found["coordinates"] = len(mean)
    found["means"] = round(float((np.abs(mean - expected) / scale < MEAN).mean()), 3)
    found["deviations"] = round(float(((ratio > SCALE[0]) & (ratio < SCALE[1])).mean()), 3)
    return found


if __name__ == "__main__":
    main()
