"""Compiled programs of guides with covariances are kept as those of others are."""

import numpyro
import numpyro.distributions as dist

import numpyro_moments
from tests.numpyro.test_programs import X, Y, compilations  # noqa: F401


def test_a_second_fit_compiles_nothing(compilations):  # noqa: F811
    """Of a model that encloses a module of a library, too."""
    distributions = dist

    def model(x, y):
        a, b = (numpyro.sample(name, distributions.Normal(0.0, 1.0)) for name in "ab")
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", distributions.Normal(a + b * x, 0.3), obs=y)

    for data in ((X, Y), (X**2, -Y)):
        guide = numpyro_moments.GaussianGuide()
        compilations.clear()
        numpyro_moments.fit(model, guide, *data, method="newton", progress_bar=False)
    assert not compilations
