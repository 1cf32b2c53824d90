"""Models of docs/models_tried.md converge and agree with draws."""

import functools
import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.checks.carried import in_numpyro, loss_and_slopes
from tests.checks.jaxprs import by_numpy
from tests.checks.trained import decrease

DOCS = Path(__file__).resolve().parents[2] / "docs"
DRAWS = 300

NAMES = ["tools", "tadpoles", "noisy_divorce", "one_parameter", "growth"]
NAMES += ["cafes", "wages", "education"]  # Cholesky factors and a simplex


@pytest.fixture
def textbooks(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("models_tried_textbooks")


@functools.cache
def fitted(framework, name):
    """A fit in double precision."""
    textbooks = importlib.import_module("models_tried_textbooks")
    host = textbooks.FRAMEWORKS[framework]
    data = [host.array(values) for values in textbooks.data_of(name)]
    model, guide = getattr(host.models, name), host.package.DVIGuide()
    return host.package.fit(model, guide, *data, method="newton", float64=True)


@pytest.mark.parametrize(
    ("name", "framework"), [*((name, "pyro") for name in NAMES), ("tools", "numpyro")]
)
def test_models_of_textbooks_converge_and_agree_with_draws(textbooks, framework, name):
    fit = fitted(framework, name)
    assert fit.converged, fit.reason
    assert fit.by_draws.answer == "agrees", fit.by_draws


def in_double(values):
    """As ``fit`` has it with ``float64=True``."""
    return values.astype(np.float64) if values.dtype == np.float32 else values


@pytest.mark.parametrize("name", NAMES[1:])
def test_numpyro_has_the_optimum_of_pyro_and_agrees_with_its_own_draws(textbooks, name):
    fit, host = fitted("pyro", name), textbooks.FRAMEWORKS["numpyro"]
    model, guide = getattr(host.models, name), host.package.DVIGuide()
    with jax.enable_x64(True):
        data = [host.array(in_double(values)) for values in textbooks.data_of(name)]
        objective = host.package.DeterministicELBO()
        loss, slopes = loss_and_slopes(objective, model, guide, fit.params, *data)
        params = in_numpyro(fit.params)

        def draw(key):
            return host.trace_elbo().loss(key, params, model, guide, *data)

        drawn = by_numpy(jax.vmap(draw))(jax.random.split(jax.random.key(1), DRAWS))
    assert loss == pytest.approx(fit.loss, rel=1e-9)
    assert decrease(fit.params, slopes) < 1e-7
    assert abs(loss - drawn.mean()) < max(0.01 * abs(loss), 3 * drawn.std() / DRAWS**0.5)


def test_lines_of_a_page_are_kept_where_others_are_tried_anew(textbooks):
    lines = {
        (framework, name): textbooks._line(name, "**works**", None, None, framework)
        for framework in textbooks.FRAMEWORKS
        for name in list(textbooks.TITLES)[:3]
    }
    assert textbooks.lines_of(textbooks.page(lines)) == lines
