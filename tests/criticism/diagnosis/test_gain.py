"""What a model predicts beyond the frequencies of classes, or beyond one Gaussian for all data."""

import numpy as np
import pytest

from moment_inference.criticism.diagnosis.findings import Verdict
from tests.criticism.containers.programs import doubles, fresh

ROWS = 60
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=ROWS)
NOISE = RANDOM.normal(size=ROWS)
LOGISTIC = RANDOM.logistic(size=ROWS)


@pytest.fixture
def host():
    """One of both, as they share what is said."""
    return fresh("pyro")


def diagnosed(host, family, y, slope=True):
    def model(x, y=None):
        level = host.language.sample("level", host.dist.Normal(0.0, 2.0))
        normal = host.dist.Normal(0.0, 2.0)
        x = x * (host.language.sample("slope", normal) if slope else 0.0)
        host.observe(x, family(level + x), y)

    with doubles(host):
        data = [host.array(X), host.array(y)]
        guide = host.package.DVIGuide()
        result = host.package.fit(model, guide, *data, method="newton", by_draws=False)
        return host.package.diagnose(model, result, *data, verbose=False, num_samples=500)


def families(host):
    return {
        "real": (lambda f: host.dist.Normal(f, 1.0), lambda slope: slope * X + NOISE),
        "classes": (
            lambda f: host.dist.Bernoulli(logits=f),
            lambda slope: 1.0 * (slope * X + LOGISTIC > 0),
        ),
    }


@pytest.mark.parametrize("kind", ["real", "classes"])
def test_a_model_that_knows_nothing_is_bad(host, kind):
    family, data = families(host)[kind]
    known = diagnosed(host, family, data(3.0))["gain of obs"]
    assert known.verdict is Verdict.GOOD
    y = data(0.0)
    unknown = diagnosed(host, family, y)["gain of obs"]
    assert unknown.verdict is Verdict.BAD
    words = {"real": "one Gaussian for all data", "classes": "the frequencies of the classes"}
    assert f"no better than {words[kind]}" in unknown.meaning
    if kind == "real":
        score = -ROWS * np.log(y.std() * np.sqrt(2 * np.pi * np.e)) - 2
    else:
        score = sum((y == k).sum() * np.log((y == k).mean()) for k in (0, 1)) - 1
    assert unknown.meaning.endswith(f"score is {score:.1f}")


def test_without_covariates_there_is_nothing_to_gain(host):
    family, data = families(host)["classes"]
    with pytest.raises(KeyError, match="'gain of obs' was not looked at"):
        diagnosed(host, family, data(0.0), slope=False)["gain of obs"]
