"""Slips of calls: each in either framework, and what its message must say."""

from __future__ import annotations

import jax
import numpyro
import pyro
import torch

from tests.mistakes.data import FRAME, IN, OUT, newton, regression


def data(host):
    return host.array(IN), host.array(OUT)


def G(host):
    return host.package.DVIGuide()


def F(host):
    return newton(host, regression, IN, OUT)


def fit(host, model=None, guide=None, *d, **o):
    o = {"method": "newton", "by_draws": False, **o}
    return host.package.fit(
        host.regression if model is None else model,
        G(host) if guide is None else guide,
        *(d or data(host)),
        **o,
    )


def other(host):
    return (numpyro if host.name == "pyro" else pyro), __import__(
        "numpyro_moments" if host.name == "pyro" else "pyro_moments"
    )


def svi(host, *a):
    p = host.package
    s = p.SVI(*(a or (host.regression, p.DVIGuide(), p.DeterministicELBO())))
    return s


def step(host, s, *d):
    d = d or data(host)
    if host.name == "pyro":
        return s.step(*d)
    return s.update(s.init(jax.random.key(0), *d), *d)


def run(host, s, *d):
    d = d or data(host)
    if host.name == "pyro":
        return [s.step(*d) for _ in range(3)]
    return s.run(jax.random.key(0), 3, *d, progress_bar=False).losses


class Net(torch.nn.Module):
    def forward(self, x, y=None):
        return x


def steps_model(host):
    def model(x, y=None, steps=3):
        return host.regression(x, y)

    return model


def mcmc(host):
    import numpyro.infer as ni
    import pyro.infer as pi

    inf = pi if host.name == "pyro" else ni
    m = inf.MCMC(
        inf.NUTS(host.regression),
        num_samples=5,
        **(
            {"warmup_steps": 5, "disable_progbar": True}
            if host.name == "pyro"
            else {"num_warmup": 5, "progress_bar": False}
        ),
    )
    (m.run(*data(host)) if host.name == "pyro" else m.run(jax.random.key(0), *data(host)))
    return m


def nosample(x, y=None):
    return x.sum()


def P(host):
    return host.package


def by_fit(verb):
    def call(host, *a, **k):
        return getattr(host.package, verb)(*a, **k)

    return call


def other_model(host):
    def model(x, y=None):
        w = host.language.sample("slope", host.dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with host.language.plate("data", len(x)):
            return host.language.sample("obs", host.dist.Normal(x @ w, 0.3), obs=y)

    return model


CALLS = {
    "guide class": lambda h: fit(h, None, h.package.DVIGuide),
    "svi guide class": lambda h: step(
        h, svi(h, h.regression, h.package.DVIGuide, h.package.DeterministicELBO())
    ),
    "objective class": lambda h: fit(h, objective=h.package.DeterministicELBO),
    "svi objective class": lambda h: step(
        h, svi(h, h.regression, G(h), h.package.DeterministicELBO)
    ),
    "optimiser class": lambda h: fit(
        h,
        method="adam",
        steps=3,
        optimiser=(pyro.optim.Adam if h.name == "pyro" else numpyro.optim.Adam),
    ),
    "torch optimiser class": lambda h: fit(h, method="adam", steps=3, optimiser=torch.optim.Adam),
    "torch optimiser instance": lambda h: fit(
        h, method="adam", steps=3, optimiser=torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    ),
    "svi optimiser class": lambda h: step(
        h,
        svi(
            h,
            h.regression,
            G(h),
            (pyro.optim.Adam if h.name == "pyro" else numpyro.optim.Adam),
            h.package.DeterministicELBO(),
        ),
    ),
    "model class": lambda h: fit(h, Net),
    "model called": lambda h: fit(h, 3.0),
    "model None": lambda h: h.package.fit(None, G(h), *data(h)),
    "swapped": lambda h: h.package.fit(G(h), h.regression, *data(h)),
    "svi swapped": lambda h: step(h, svi(h, G(h), h.regression)),
    "guide twice": lambda h: h.package.fit(h.regression, G(h), G(h), *data(h)),
    "objective positional": lambda h: h.package.fit(
        h.regression, G(h), h.package.DeterministicELBO(), *data(h)
    ),
    "no guide": lambda h: h.package.fit(h.regression, *data(h)),
    "fit for model": lambda h: fit(h, F(h)),
    "fit for guide": lambda h: fit(h, None, F(h)),
    "svi for model": lambda h: fit(h, svi(h)),
    "svi fit": lambda h: step(h, svi(h, h.regression, F(h), h.package.DeterministicELBO())),
    "lr": lambda h: fit(h, method="adam", lr=0.1),
    "optimizer": lambda h: fit(h, method="adam", optimizer=None),
    "batchsize": lambda h: fit(h, method="adam", batchsize=10),
    "num_steps": lambda h: fit(h, method="adam", num_steps=10),
    "unknown": lambda h: fit(h, method="adam", frobnicate=10),
    "method": lambda h: fit(h, method="Newton"),
    "method lbfgs": lambda h: fit(h, method="l-bfgs"),
    "steps option": lambda h: fit(h, steps_model(h), None, *data(h), steps=10),
    "data tuple": lambda h: h.package.fit(
        steps_model(h), G(h), data=(*data(h), 3), method="newton"
    ),
    "data dict": lambda h: h.package.fit(
        steps_model(h), G(h), data=dict(zip("xy", data(h))), method="newton"
    ),
    "too many args": lambda h: fit(h, None, None, *data(h), data(h)[0]),
    "too few args": lambda h: h.package.fit(h.regression, G(h), method="newton"),
    "no sample": lambda h: fit(h, nosample),
    "elbo of other": lambda h: fit(h, objective=other(h)[1].DeterministicELBO()),
    "guide of other": lambda h: fit(h, None, other(h)[1].DVIGuide()),
    "svi elbo of other": lambda h: step(
        h, svi(h, h.regression, G(h), other(h)[1].DeterministicELBO())
    ),
    "svi guide of other": lambda h: step(h, svi(h, h.regression, other(h)[1].DVIGuide())),
    "arrays of other": lambda h: (
        fit(
            h,
            None,
            None,
            *(
                (jax.numpy.asarray(IN), jax.numpy.asarray(OUT))
                if h.name == "pyro"
                else (torch.tensor(IN), torch.tensor(OUT))
            ),
        ).loss
    ),
    "svi arrays of other": lambda h: step(
        h,
        svi(h),
        *(
            (jax.numpy.asarray(IN), jax.numpy.asarray(OUT))
            if h.name == "pyro"
            else (torch.tensor(IN), torch.tensor(OUT))
        ),
    ),
    "svi numpy": lambda h: step(h, svi(h), IN, OUT),
    "svi no args": lambda h: svi(h).step() if h.name == "pyro" else svi(h).init(jax.random.key(0)),
    "svi int key": lambda h: (
        svi(h).step(*data(h)) if h.name == "pyro" else svi(h).init(0, *data(h))
    ),
    "svi step of init": lambda h: (
        svi(h).step(*data(h)) if h.name == "pyro" else svi(h).update(jax.random.key(0), *data(h))
    ),
    "svi method of other": lambda h: (
        svi(h).update(*data(h)) if h.name == "pyro" else svi(h).step(*data(h))
    ),
    "predict untrained": lambda h: h.package.predict(
        h.regression, G(h), *((data(h)[0],) if h.name == "pyro" else ({}, data(h)[0]))
    ),
    "predict swapped": lambda h: h.package.predict(F(h), h.regression, data(h)[0]),
    "predict fit alone": lambda h: h.package.predict(F(h), data(h)[0]),
    "predict too many": lambda h: h.package.predict(h.regression, F(h), data(h)[0], data(h)[1], 3),
    "predict no args": lambda h: h.package.predict(h.regression, F(h)),
    "predict other model": lambda h: h.package.predict(other_model(h), F(h), data(h)[0]),
    "predict guide only": lambda h: h.package.predict(h.regression, F(h).guide, data(h)[0]),
    "predict kwarg": lambda h: h.package.predict(h.regression, F(h), data(h)[0], num_samples=3),
    "predict propagation": lambda h: h.package.predict(
        h.regression, F(h), data(h)[0], propagation="analytical"
    ),
    "predict class": lambda h: h.package.predict(h.regression, h.package.DVIGuide, data(h)[0]),
    "lr swapped": lambda h: h.package.linear_response(F(h), h.regression, *data(h)),
    "lr class": lambda h: h.package.linear_response(h.regression, h.package.DVIGuide, *data(h)),
    "lr no data": lambda h: h.package.linear_response(h.regression, F(h)),
    "lr no y": lambda h: h.package.linear_response(h.regression, F(h), data(h)[0]),
    "lr other model": lambda h: h.package.linear_response(other_model(h), F(h), *data(h)),
    "lr mcmc": lambda h: h.package.linear_response(h.regression, mcmc(h), *data(h)),
    "diagnose swapped": lambda h: h.package.diagnose(F(h), h.regression, *data(h)),
    "diagnose no data": lambda h: h.package.diagnose(h.regression, F(h)),
    "diagnose no y": lambda h: h.package.diagnose(h.regression, F(h), data(h)[0]),
    "diagnose mcmc": lambda h: h.package.diagnose(h.regression, mcmc(h), *data(h)),
    "diagnose held_out": lambda h: h.package.diagnose(
        h.regression, F(h), *data(h), held_out=data(h)[0]
    ),
    "diagnose response": lambda h: h.package.diagnose(
        h.regression, h.package.linear_response(h.regression, F(h), *data(h)), *data(h)
    ),
    "loo swapped": lambda h: h.package.loo(h.regression, F(h), *data(h)),
    "loo no model": lambda h: h.package.loo(F(h)),
    "loo model missing": lambda h: h.package.loo(F(h), *data(h)),
    "loo no data": lambda h: h.package.loo(F(h), h.regression),
    "loo no y": lambda h: h.package.loo(F(h), h.regression, data(h)[0]),
    "idata swapped": lambda h: h.package.to_inference_data(h.regression, F(h), *data(h)),
    "cmp swapped": lambda h: h.package.compare_with_nuts(
        F(h), h.regression, *data(h), num_warmup=5, num_samples=5
    ),
    "cmp reference fit": lambda h: h.package.compare_with_nuts(
        h.regression, F(h), *data(h), reference=F(h)
    ),
    "cmp no y": lambda h: h.package.compare_with_nuts(
        h.regression, F(h), data(h)[0], num_warmup=5, num_samples=5
    ),
    "propagate no moments": lambda h: h.package.propagate(lambda x: x * 2, h.array(IN)),
    "propagate numpy": lambda h: h.package.propagate(
        lambda x: x * 2, h.package.Moments(IN, variance=IN**2)
    ),
    "propagate class": lambda h: h.package.propagate(
        torch.nn.Linear, h.package.Moments(h.array(IN), variance=h.array(IN**2))
    ),
    "propagate swapped": lambda h: h.package.propagate(
        h.package.Moments(h.array(IN), variance=h.array(IN**2)), lambda x: x
    ),
    "moments negative": lambda h: h.package.propagate(
        lambda x: x * 2, h.package.Moments(h.array(IN), variance=h.array(IN))
    ),
    "moments neither": lambda h: h.package.Moments(h.array(IN)),
    "moments shape": lambda h: h.package.propagate(
        lambda x: x * 2, h.package.Moments(h.array(IN), variance=h.array(IN[:3]))
    ),
    "save swapped": lambda h: h.package.save("/tmp/team/x.st", F(h), h.regression, *data(h)),
    "save result first": lambda h: h.package.save(F(h), "/tmp/team/x.st", h.regression, *data(h)),
    "save no data": lambda h: h.package.save("/tmp/team/x.st", h.regression, F(h)),
    "save no folder": lambda h: h.package.save(
        "/tmp/team/nowhere/x.st", h.regression, F(h), *data(h)
    ),
    "load missing": lambda h: h.package.load("/tmp/team/nofile.st", h.regression, G(h), *data(h)),
    "load class": lambda h: (
        h.package.save("/tmp/team/x.st", h.regression, F(h), *data(h)),
        h.package.load("/tmp/team/x.st", h.regression, h.package.DVIGuide, *data(h)),
    )[1],
    "load no data": lambda h: (
        h.package.save("/tmp/team/x.st", h.regression, F(h), *data(h)),
        h.package.load("/tmp/team/x.st", h.regression, G(h)),
    )[1],
    "load fit": lambda h: (
        f := F(h),
        h.package.save("/tmp/team/x.st", h.regression, f, *data(h)),
        h.package.load("/tmp/team/x.st", h.regression, f, *data(h)),
    )[-1],
    "load other model": lambda h: (
        h.package.save("/tmp/team/x.st", h.regression, F(h), *data(h)),
        h.package.load("/tmp/team/x.st", other_model(h), G(h), *data(h)),
    )[1],
    "params of other model": lambda h: (
        h.package.predict(h.regression, G(h), fit(h, other_model(h)).params, data(h)[0])
        if h.name == "numpyro"
        else h.package.linear_response(
            h.regression, G(h), *data(h), params=fit(h, other_model(h)).params
        )
    ),
    "start of other model": lambda h: fit(h, start=fit(h, other_model(h))),
    "steps 0": lambda h: fit(h, steps=0),
    "steps str": lambda h: fit(h, steps="10"),
    "lr str": lambda h: fit(h, method="adam", steps=2, learning_rate="0.1"),
    "lr negative": lambda h: fit(h, method="adam", steps=2, learning_rate=-0.1),
    "seed key": lambda h: fit(
        h, seed=jax.random.key(0) if h.name == "numpyro" else torch.Generator()
    ),
    "batch too big": lambda h: fit(h, method="adam", steps=2, batch_size=50),
    "held_out array": lambda h: fit(h, method="adam", steps=2, held_out=data(h)[0]),
    "callback not callable": lambda h: fit(h, method="adam", steps=2, callback=3),
    "loo of predict": lambda h: h.package.loo(
        h.package.predict(h.regression, F(h), data(h)[0]), h.regression, *data(h)
    ),
    "calibration no site": lambda h: h.package.calibration(
        h.package.predict(h.regression, F(h), data(h)[0]), data(h)[1]
    ),
    "df names": lambda h: h.package.fit(byname(h), G(h), FRAME.assign(y=OUT), method="newton").loss,
}


def byname(h):
    def model(a, b, c, y=None):
        w = h.weight()
        with h.language.plate("data", len(a)):
            return h.language.sample(
                "obs", h.dist.Normal(a * w[0] + b * w[1] + c * w[2], 0.3), obs=y
            )

    return model
