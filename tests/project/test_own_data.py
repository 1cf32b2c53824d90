"""The page for a user's own data runs as it stands, on a file that is made here."""

import ast
import functools
from pathlib import Path

import numpy as np
import pytest

from moment_calculus.predictions.site import PredictedSite
from tests.checks import small_programs
from tests.project.test_readme import ROOT, python_blocks, run_in_order

PAGE = ROOT / "docs" / "own_data.md"
MAKING, CLEANING, PYRO, NUMPYRO, SAYING, NEW, GAPS = python_blocks(PAGE)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")


@pytest.fixture(autouse=True)
def _by_numpy():
    """What the page's lines find does not depend on a compiler."""
    with small_programs.large_by_numpy():
        yield


def write(rows=200):
    """A line whose noise has a standard deviation of 0.2 to 4 units, with a useless column."""
    random = np.random.default_rng(0)
    x, useless = random.uniform(-1, 1, rows), random.normal(1e4, 100, rows)
    y = 50 - 10 * x + 2 * np.exp(1.5 * x) * random.normal(size=rows) / 2.24
    np.savetxt("data.csv", np.column_stack([x, useless, y]), delimiter=",", header="x,useless,y")


@pytest.mark.parametrize("lines", [PYRO, NUMPYRO], ids=["pyro", "numpyro"])
def test_intervals_hold_on_held_out_rows(lines, tmp_path, capsys, monkeypatch):
    """The lines ask three times for the intervals of a prediction, which are found once."""
    monkeypatch.setattr(PredictedSite, "interval", functools.cache(PredictedSite.interval))
    write()
    found = {}
    few = lines.replace("20", "4").replace('"lbfgs"', '"lbfgs", steps=40')  # hidden units
    run_in_order([few, SAYING], str(PAGE), found)
    checked = found["checked"]
    assert checked.observed.size == 40
    assert checked.coverage([0.5, 0.9]).p_value.min() > 0.01
    x, (lower, upper) = np.asarray(found["x"])[:40, 0], (found["lower"], found["upper"])
    assert np.corrcoef(x, np.asarray(upper - lower))[0, 1] > 0.7  # where the noise is larger
    assert 40 < float(lower.mean()) < 50 < float(upper.mean()) < 60
    printed = capsys.readouterr().out
    assert f"90 % intervals hold {100 * checked.coverage(0.9).observed[0]:.3g} ±" in printed
    for name in ("pit.png", "coverage.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_file_of_the_page_has_the_form_that_it_describes():
    run_in_order([MAKING], str(PAGE), {})
    assert np.loadtxt("data.csv", delimiter=",", skiprows=1).shape == (600, 4)


@pytest.mark.parametrize("lines", [PYRO, NUMPYRO], ids=["pyro", "numpyro"])
def test_it_takes_fifteen_statements(lines):
    statements = [node for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.stmt)]
    assert sum(not isinstance(one, ast.Import | ast.ImportFrom) for one in statements) == 15


def write_raw():
    lines = ["spending,city,age", "1,Oslo,20", "2,Bern,30", ",Bern,31", "4,Oslo,", "5,,33"]
    Path("raw.csv").write_text("\n".join(lines), encoding="utf-8")


def test_text_and_gaps_become_numbers():
    write_raw()
    run_in_order([CLEANING], str(PAGE), {})
    assert Path("data.csv").read_text(encoding="utf-8").startswith("city_Oslo,age,spending")
    np.testing.assert_array_equal(
        np.loadtxt("data.csv", delimiter=",", skiprows=1), [[1, 20, 1], [0, 30, 2]]
    )


def test_a_file_keeps_gaps_of_numbers():
    write_raw()
    last = CLEANING.replace(".dropna()", '.dropna(subset=["city", "spending"])')
    run_in_order([last], str(PAGE), {})
    table = np.loadtxt("data.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(table, [[1, 20, 1], [0, 30, 2], [1, np.nan, 4]])
    centre = "centre, scale = np.nanmean(table[count:], 0), np.nanstd(table[count:], 0)"
    assert PYRO.count(centre) == NUMPYRO.count(centre) == 1


def coded(city, found):
    """Inputs of the model for one new row, by the page's lines."""
    Path("new.csv").write_text(f"city,age\n{city},30", encoding="utf-8")
    found |= {"centre": np.zeros(3), "scale": np.ones(3), "network": None, "result": None}
    found["predict"] = lambda network, result, x: {"obs": x}
    run_in_order([NEW], str(PAGE), found)
    return found["new_prediction"].tolist()


def test_new_rows_are_coded_as_those_of_the_training():
    write_raw()
    found = {}
    run_in_order([CLEANING], str(PAGE), found)
    assert coded("Oslo", found) == [[1, 30]]  # one category alone has its column
    assert coded("Bern", found) == [[0, 30]]
    for city in ("Rome", ""):
        with pytest.raises(ValueError, match="Found unknown categories"):
            coded(city, found)


@pytest.mark.parametrize("package", ["pyro_moments", "numpyro_moments"])
def test_the_lines_for_gaps_run(package):
    write(60)
    lines = {"pyro_moments": PYRO, "numpyro_moments": NUMPYRO}[package].replace("20", "2")
    gaps = {
        "pyro_moments": "x[::5, 0] = np.nan",
        "numpyro_moments": "x = x.at[::5, 0].set(np.nan)",
    }[package]
    found = {}
    short = GAPS.replace("pyro_moments", package).replace('"lbfgs"', '"lbfgs", "steps": 5')
    run_in_order([lines.replace('"lbfgs"', '"lbfgs", steps=2'), gaps, short], str(PAGE), found)
    assert np.isfinite(np.asarray(found["prediction"].mean)).all()
