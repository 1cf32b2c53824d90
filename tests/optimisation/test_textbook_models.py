"""Models of textbooks, as docs/models_tried.md has them, converge and agree with draws."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


NAMES = ["tools", "tadpoles", "noisy_divorce", "one_parameter", "growth"]
NAMES += ["cafes", "wages", "education"]  # Cholesky factors and a simplex


@pytest.fixture
def textbooks(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("models_tried_textbooks")


@pytest.mark.parametrize("framework", ["pyro", "numpyro"])
@pytest.mark.parametrize("name", NAMES)
def test_models_of_textbooks_converge_and_agree_with_draws(textbooks, framework, name):
    host = textbooks.FRAMEWORKS[framework]
    data = [host.array(values) for values in textbooks.data_of(name)]
    model, guide = getattr(host.models, name), host.package.DVIGuide()
    fit = host.package.fit(model, guide, *data, method="newton", float64=True)
    assert fit.converged, fit.reason
    assert not fit.by_draws.is_off, fit.by_draws


def test_lines_of_a_page_are_kept_where_others_are_tried_anew(textbooks):
    lines = {
        (framework, name): textbooks._line(name, "**works**", None, None, framework)
        for framework in textbooks.FRAMEWORKS
        for name in list(textbooks.TITLES)[:3]
    }
    assert textbooks.lines_of(textbooks.page(lines)) == lines
