"""The page of the models that were tried: its loader, its verdicts, and that it is complete."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPT = """
import no_such_package
import torch
import pyro
import pyro.distributions as dist
from beside import COUNT

assert no_such_package.works()
SCALE = 2.0
unused = no_such_package.number
data = torch.zeros(COUNT)


def prior(scale=SCALE):
    return dist.Normal(0.0, scale)


def model(x):
    z = pyro.sample("z", prior())
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(z, 1.0), obs=x)


def positive(x):
    rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
    pyro.sample("obs", dist.Normal(torch.fft.fft(rate.expand(2)).real, 1.0).to_event(1), obs=x[:2])


def main():
    def model(x):
        return "inner", SCALE

    def guide(x):
        return "guide"

    model(data)


def model(x):
    return "the second"


main()
"""


@pytest.fixture(autouse=True)
def _docs_on_path(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "beside.py").write_text("COUNT = 5\n", encoding="utf-8")
    file = tmp_path / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    return file


def test_only_what_a_model_is_made_of_is_run(script):
    from models_tried_sources import load

    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        exec(SCRIPT, {})
    model, data = load(script, ["prior", "data"])
    assert model().scale == 2
    assert data.shape == (5,)
    assert "beside" not in sys.modules
    with pytest.raises(LookupError, match="missing"):
        load(script, ["missing"])


def test_functions_of_a_function_and_given_values(script):
    from models_tried_sources import load

    model, guide = load(script, ["main.model", "main.guide"], {"SCALE": 3.0})
    assert (model(0), guide(0)) == (("inner", 3.0), "guide")


def test_cells_of_a_notebook(tmp_path):
    from models_tried_sources import load

    cells = ["%matplotlib inline\n!pip install it\nk = 1", "def f():\n    return k", "k = 2"]
    cells = [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]
    cells.insert(1, {"cell_type": "markdown", "source": ["def f(: no Python"]})
    file = tmp_path / "notebook.ipynb"
    file.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert load(file, ["f"])[0]() == 1  # what is defined before


def test_the_verdicts_of_models(script, monkeypatch):
    import models_tried_pyro as host
    from models_tried_sources import load
    from models_tried_verdicts import verdict

    works, drawn, data = load(script, ["model", "positive", "data"])
    found = verdict(host, works, None, (data,), share=0.02)
    assert (found.kind, found.sites, found.reason) == ("works", (), "")
    assert abs(found.difference) < 5
    found = verdict(host, drawn, None, (data,), share=0.01)
    assert (found.kind, found.sites) == ("drawn", ("rate",))
    assert "no moment rule" in found.reason
    assert found.ours.error > 0
    found = verdict(host, lambda x: 1 / 0, None, (data,))
    assert (found.kind, found.reason) == ("crashed", "ZeroDivisionError: division by zero")


class Refusing:
    """A host that asks for sites until those that it needs are drawn."""

    def __init__(self, named, needed):
        self.named, self.needed = named, needed

    def evaluate(self, model, guide, data, sites):
        if not set(self.needed) <= set(sites):
            raise UnsupportedMoments("no rule; none at all", sites=self.named, operation="f")

    def elbos(self, model, guide, data, sites, share):
        return np.array([1.0, 2.0]), np.array([0.0, 1.0])


@pytest.mark.parametrize(
    ("named", "needed", "kind", "sites"),
    [
        ("", "", "works", ""),
        ("ab", "ab", "drawn", "ab"),
        ("abc", "b", "drawn", "b"),
        ("ab", "c", "refused", "ab"),
    ],
)
def test_as_few_sites_are_drawn_as_are_needed(named, needed, kind, sites):
    from models_tried_verdicts import verdict

    found = verdict(Refusing(named, needed), None, None, ())
    assert (found.kind, found.sites) == (kind, tuple(sites))
    assert found.reason == ("f: no rule" if named else "")
    if kind != "refused":
        assert found.difference == pytest.approx(1 / np.hypot(*2 * [0.5 / np.sqrt(2)]))


def test_the_page_names_every_model():
    import models_tried

    text = models_tried.PAGE.read_text(encoding="utf-8")
    assert text.startswith(models_tried.HEAD)
    rows = re.findall(
        r"^\| (.*?) \(`(.*?)`\) \|.*\*\*(works|drawn|refused)\*\*", text, re.MULTILINE
    )
    listed = [(m.name, m.file) for host in models_tried.HOSTS.values() for m in host.MODELS]
    assert [row[:2] for row in rows] == listed
