"""Slips of data: each a call in either framework, and what its message must say."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tests.fitting.models import X, Y

ROWS = 20
IN, OUT = X[:ROWS], Y[:ROWS]
COUNTS = np.arange(ROWS) % 4
LABELS = np.arange(ROWS) % 3


def changed(array, place, value):
    """A copy of an array with another value at a place."""
    array = np.array(array)
    array[place] = value
    return array


def regression(host):
    """A Normal likelihood in a plate."""
    return host.regression


def of(family):
    """A model whose observations have a family of the linear predictor."""

    def maker(host):
        def model(x, y=None):
            weight = host.weight()
            with host.language.plate("data", len(x)):
                return host.language.sample("obs", family(host, x @ weight), obs=y)

        return model

    return maker


counts = of(lambda host, eta: host.dist.Poisson(host.np.exp(0.1 * eta)))
binary = of(lambda host, eta: host.dist.Bernoulli(logits=eta))
trials = of(lambda host, eta: host.dist.Binomial(4, logits=eta))
positive = of(lambda host, eta: host.dist.LogNormal(eta, 1.0))
shares = of(
    lambda host, eta: host.dist.Beta(host.np.exp(0.1 * eta), host.np.ones_like(host.array(OUT)))
)


def classes(host):
    """A softmax regression."""

    def model(x, y=None):
        prior = host.dist.Normal(0.0, 1.0).expand([3, 3]).to_event(2)
        weight = host.language.sample("weight", prior)
        with host.language.plate("data", len(x)):
            return host.language.sample("obs", host.dist.Categorical(logits=x @ weight), obs=y)

    return model


def newton(host, model, *data, **options):
    """A fit of arrays of the framework."""
    arrays = [host.array(part) if isinstance(part, np.ndarray) else part for part in data]
    options = {"method": "newton", "by_draws": False, **options}
    return host.package.fit(model(host), host.package.DVIGuide(), *arrays, **options)


def predicted(host, x):
    """Predictions of a fit for other inputs."""
    return host.package.predict(host.regression, newton(host, regression, IN, OUT), x)


FRAME = pd.DataFrame(IN, columns=["a", "b", "c"])

DATA = {
    "NaN in the inputs": lambda host: newton(host, regression, changed(IN, (4, 1), np.nan), OUT),
    "NaN in the inputs, adam": lambda host: newton(
        host, regression, changed(IN, (4, 1), np.nan), OUT, method="adam", steps=3
    ),
    "infinity in the inputs": lambda host: newton(
        host, regression, changed(IN, (4, 1), np.inf), OUT
    ),
    "NaN in the observations": lambda host: newton(host, regression, IN, changed(OUT, 7, np.nan)),
    "NaN in the observations, adam": lambda host: newton(
        host, regression, IN, changed(OUT, 7, np.nan), method="adam", steps=3
    ),
    "infinity in the observations": lambda host: newton(
        host, regression, IN, changed(OUT, 7, np.inf)
    ),
    "a label out of range": lambda host: newton(host, classes, IN, changed(LABELS, 3, 3)),
    "a negative label": lambda host: newton(host, classes, IN, changed(LABELS, 3, -1)),
    "labels as floats": lambda host: newton(host, classes, IN, LABELS.astype(np.float32)),
    "labels of 1 to 2": lambda host: newton(host, binary, IN, (LABELS % 2 + 1).astype(np.float32)),
    "bool labels": lambda host: newton(host, binary, IN, LABELS > 0),
    "int labels": lambda host: newton(host, binary, IN, (LABELS > 0).astype(int)),
    "a negative count": lambda host: newton(host, counts, IN, changed(COUNTS, 2, -1)),
    "a negative count, float": lambda host: newton(
        host, counts, IN, changed(COUNTS, 2, -1).astype(np.float32)
    ),
    "a count that is no integer": lambda host: newton(
        host, counts, IN, (COUNTS + 0.5).astype(np.float32)
    ),
    "a count beyond the trials": lambda host: newton(
        host, trials, IN, changed(COUNTS, 5, 5).astype(np.float32)
    ),
    "zero of a positive": lambda host: newton(host, positive, IN, changed(np.exp(OUT), 0, 0.0)),
    "a share of one": lambda host: newton(
        host, shares, IN, changed(np.full(ROWS, 0.5, np.float32), 6, 1.5)
    ),
    "a column of observations": lambda host: newton(host, regression, IN, OUT[:, None]),
    "forgotten observations": lambda host: newton(host, regression, IN),
    "forgotten observations of counts": lambda host: newton(host, counts, IN),
    "integer inputs": lambda host: newton(host, regression, np.arange(60).reshape(20, 3), OUT),
    "double inputs": lambda host: newton(host, regression, IN.astype(np.float64), OUT),
    "double y": lambda host: newton(host, regression, IN, OUT.astype(np.float64)),
    "integer y of normal": lambda host: newton(host, regression, IN, COUNTS),
    "fewer observations than inputs": lambda host: newton(host, regression, IN, OUT[:15]),
    "one observation": lambda host: newton(host, regression, IN, OUT[:1]),
    "fewer inputs": lambda host: newton(host, regression, IN[:15], OUT),
    "text as labels": lambda host: host.package.fit(
        classes(host), host.package.DVIGuide(), IN, np.array(["a", "b"] * 10), method="newton"
    ),
    "text list": lambda host: host.package.fit(
        classes(host), host.package.DVIGuide(), host.array(IN), ["a", "b"] * 10, method="newton"
    ),
    "objects": lambda host: host.package.fit(
        regression(host), host.package.DVIGuide(), IN.astype(object), OUT, method="newton"
    ),
    "numpy": lambda host: (
        host.package.fit(regression(host), host.package.DVIGuide(), IN, OUT, method="newton").loss
    ),
    "numpy double": lambda host: (
        host.package.fit(
            regression(host),
            host.package.DVIGuide(),
            IN.astype(float),
            OUT.astype(float),
            method="newton",
        ).loss
    ),
    "lists": lambda host: (
        host.package.fit(
            regression(host), host.package.DVIGuide(), IN.tolist(), OUT.tolist(), method="newton"
        ).loss
    ),
    "frame and series": lambda host: (
        host.package.fit(
            regression(host), host.package.DVIGuide(), FRAME, pd.Series(OUT), method="newton"
        ).loss
    ),
    "empty test set": lambda host: predicted(host, host.array(IN[:0])),
    "empty training set": lambda host: newton(host, regression, IN[:0], OUT[:0]),
    "one row": lambda host: predicted(host, host.array(IN[:1]))["obs"].mean.shape,
    "fit one row": lambda host: newton(host, regression, IN[:1], OUT[:1]).loss,
    "test set with other columns": lambda host: predicted(host, host.array(IN[:, :2])),
    "NaN in test set": lambda host: predicted(host, host.array(changed(IN, (4, 1), np.nan))),
    "numpy test set": lambda host: predicted(host, IN)["obs"].mean.shape,
    "1-d test set": lambda host: predicted(host, host.array(IN[0])),
    "no plate [n,1]": lambda host: no_plate(host),
    "loc [n,1]": lambda host: loc_column(host),
}


def no_plate(host):
    def model(x, y=None):
        w = host.weight()
        host.language.sample("obs", host.dist.Normal(x @ w, 1.0), obs=y)

    return host.package.fit(
        model, host.package.DVIGuide(), host.array(IN), host.array(OUT[:, None]), method="newton"
    )


def loc_column(host):
    def model(x, y=None):
        w = host.weight()
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal((x @ w)[:, None], 1.0), obs=y)

    return host.package.fit(
        model, host.package.DVIGuide(), host.array(IN), host.array(OUT), method="newton"
    )
