"""The examples of several processes end where one process does."""

from __future__ import annotations

import ast
import importlib
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_moments import DeterministicELBO, DVIGuide

LIST = re.compile(r"\[\[.*?\]\]|\[[-\d., e]*\]")  # two processes may write to one line
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def printed(*commands):
    """The lists that each of several commands prints, which run at the same time."""
    running = [
        subprocess.Popen([sys.executable, *command], cwd=EXAMPLES.parent, stdout=-1, text=True)
        for command in commands
    ]
    texts = [process.communicate(timeout=300)[0] for process in running]
    return [[ast.literal_eval(one) for one in LIST.findall(text)] for text in texts]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return lambda name: importlib.import_module(name)


def test_two_processes_of_torch_end_where_one_does(example):
    options = ["--standalone", "--nproc-per-node", "2"]
    script = str(EXAMPLES / "distributed_pyro.py")
    (both,) = printed(["-m", "torch.distributed.run", *options, script])
    alone = example("distributed_pyro").train(200, 0, 1)
    assert len(both) == 2
    for found in both:
        np.testing.assert_allclose(found, alone, atol=1e-5)


def test_two_processes_of_jax_end_where_one_does(example):
    script, address = str(EXAMPLES / "distributed_numpyro.py"), f"localhost:{free_port()}"
    found = printed(*([script, address, number, "2", "20"] for number in "01"))
    alone = example("distributed_numpyro").train(20)
    for (parts,) in found:
        for part, exact in zip(parts, alone.values(), strict=True):
            np.testing.assert_allclose(part, exact, atol=1e-5)


@pytest.mark.parametrize("total", [None, 6])
def test_rows_of_one_process_alone_are_warned_of(example, monkeypatch, total):
    import pyro
    import pyro.distributions as dist

    def model(x):
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with pyro.plate("data", total or len(x), subsample=x if total else None):
            pyro.sample("x", dist.Normal(mean, 1.0), obs=x)

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        DeterministicELBO().loss(model, DVIGuide(), torch.ones(3))
    messages = [str(one.message) for one in seen if "torch.distributed" in str(one.message)]
    assert bool(messages) == (total is None)
    assert all("2 processes" in text and "plate 'data'" in text for text in messages)
