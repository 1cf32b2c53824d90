"""The benchmarks run, briefly, and what they report is well formed."""

import json
import os
from argparse import Namespace
from itertools import starmap
from pathlib import Path

import pytest

from pyro_moments.compiled import compilers
from tests.checks import small_programs


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.mark.parametrize(("host", "contenders"), [("pyro", [4, 2, 3]), ("numpyro", [3, 3, 2, 3])])
def test_step_time(tmp_path, monkeypatch, host, contenders):
    """In NumPyro beside one reference, since XLA compiles every contender."""
    import step_time

    plan = step_time.PLANS["numpyro"] | {"references": (step_time.SAMPLED,), "two_heads": False}
    monkeypatch.setitem(step_time.PLANS, "numpyro", plan)
    out = tmp_path / "time.json"
    few = ["--repeats", "1", "--small-only", "--no-compiled"]
    with small_programs.large_by_numpy():
        step_time.main([*few, "--host", host, "--out", str(out)])
    found = json.loads(out.read_text())
    assert [len(seconds) for seconds in found.values()] == contenders
    assert all(value > 0 for seconds in found.values() for value in seconds.values())


def test_guides_speed(tmp_path):
    """Guides by their defaults, in Pyro, each with its limit."""
    import guides_speed

    out = tmp_path / "time.json"
    few = "--repeats 1 --no-compiled --only TridiagonalGuide"
    guides_speed.main([*few.split(), "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert row["ours"]["name"] == guides_speed.CHAIN
    assert row["limit"] == 2
    assert row["ratio"] > 0


def test_ordinary_models(tmp_path):
    """In Pyro: in NumPyro the script keeps its process, here the worker, to one processor."""
    import ordinary_models

    out = tmp_path / "time.json"
    few = "--repeats 1 --rows 50 --only 50".split()
    ordinary_models.main([*few, "--out", str(out)])
    found = json.loads(out.read_text())
    assert len(found) == 7
    assert all(value > 0 for seconds in found.values() for value in seconds.values())


def test_covariances(tmp_path, monkeypatch):
    """A fit beside a reference from its file, and with it one that is elsewhere."""
    import covariances

    monkeypatch.setattr(covariances.harness, "in_processes", starmap)
    name, out = "hierarchy, centred", tmp_path / "covariances.json"
    covariances.main(["--only", name, "--host", "pyro", "--out", str(out)])
    found = json.loads(out.read_text())
    sites = found[name].pop("pyro fit")["sites"]
    assert {part: len(site["mean"]) for part, site in sites.items()}["effect"] == 8
    sites["slope"]["mean"][0] += 1  # many standard deviations
    found[name]["reference"] = {"sites": sites}
    out.write_text(json.dumps(found))
    covariances.main(["--only", name, "--host", "pyro", "--out", str(out)])
    fit = json.loads(out.read_text())[name]["pyro fit"]
    assert fit["coordinates"] == 12
    assert fit["means"] == pytest.approx(11 / 12, abs=1e-3)
    assert (fit["deviations"], fit["ratios"]) == (1.0, [1.0, 1.0])
    assert fit["worst mean"] > 5


OURS = {"cold": ["full, compiled", "full, eager"], "depth": ["full", "diagonal"]}


@pytest.mark.parametrize(("host", "part"), [("pyro", "cold"), ("numpyro", "depth")])
def test_first_steps(tmp_path, monkeypatch, host, part):
    """In Pyro a compiled step and an eager one, in NumPyro two, of linear models in this process.

    Inductor is what other tests are about: here the graphs are counted that it would compile.
    """
    import first_steps

    graphs = []

    def counted(graph, *_):
        graphs.append(graph)
        return lambda tensors: graph(*tensors)

    monkeypatch.setattr(compilers, "compile_graph", counted)
    monkeypatch.setattr(first_steps, "in_processes", starmap)
    load = first_steps.harness.load  # which would keep the worker to one processor
    monkeypatch.setattr(first_steps.harness, "load", lambda name, threads: load(name))
    out = tmp_path / "first.json"
    first_steps.main(f"--host {host} --only {part} --depths 0 --out {out}".split())
    found = json.loads(out.read_text())
    assert [row["ours"]["name"] for row in found["rows"]] == OURS[part]
    assert all(row["ratio"] > 0 for row in found["rows"])
    assert len(found["instructions"]) == (2 if host == "numpyro" else 0)
    assert len(found["load"]) == 2
    assert len(graphs) == (host == "pyro")


def test_processes_of_their_own():
    import harness

    assert len({os.getpid(), *harness.in_processes(os.getpid, [(), ()])}) == 3


def test_imports_are_timed_in_fresh_interpreters(tmp_path, monkeypatch):
    """A package that takes much longer than the host that it imports."""
    import first_steps

    (tmp_path / "toy.py").touch()
    (tmp_path / "toy_moments.py").write_text("import toy\nsum(range(5_000_000))\n")
    monkeypatch.syspath_prepend(tmp_path)
    ((row, _),) = first_steps.imports(Namespace(host="toy", repeats=1))
    assert row.ours.name == "import toy_moments"
    assert row.limit == first_steps.IMPORT_LIMIT
    assert row.ratio > 1


def test_peak_memory(tmp_path):
    """The covariances are in it, and the network of the benchmark keeps to its limit."""
    import peak_memory

    out = tmp_path / "memory.json"
    peak_memory.main(["--check", "--out", str(out)])
    assert all(2 < tensors <= peak_memory.LIMIT for tensors in json.loads(out.read_text()).values())


def test_dropout_accuracy(tmp_path):
    """Deviations within five per cent; those of the first layer within their standard errors."""
    import dropout_accuracy

    out = tmp_path / "accuracy.json"
    options = "--sizes 64 30 20 10 --masks 4000 --first 20000 --steps 60"
    dropout_accuracy.main([*options.split(), "--out", str(out)])
    rows = json.loads(out.read_text())
    assert [row["layer"] for row in rows] == [1, 2, 3, 1, 2, 3]
    for row in rows:
        assert 0.95 < row["deviation_ratio"] < 1.05, row
        if row["layer"] == 1:
            assert row["rms_standard_errors"] < 1.3, row
            assert row["share_beyond_three"] < 0.02, row
