"""The examples of several processes end where one process does."""

import ast
import importlib
import os
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
from tests.checks import small_programs

LIST = re.compile(r"\[\[.*?\]\]|\[[-\d., e]*\]")  # two processes may write to one line
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


# Two processes by one import: the second is a fork from before any framework has started.
FORKED = """
import atexit, importlib, os, runpy, sys

child = None

def end():
    if child and os.waitpid(child, 0)[1]:
        os._exit(1)

atexit.register(end)  # and so called after what frameworks do in the end, together
script, packages, *arguments = sys.argv[1:]
for package in packages.split():
    importlib.import_module(package)
child = os.fork()
number = "01"[child == 0]
os.environ["RANK"] = os.environ["LOCAL_RANK"] = number
sys.argv = [script, *(number if given == "NUMBER" else given for given in arguments)]
runpy.run_path(script, run_name="__main__")
"""


def printed(script, packages, *arguments, **environment):
    """The lists that two processes print in all, which run a script at the same time."""
    command = [sys.executable, "-c", FORKED, str(EXAMPLES / script), packages, *arguments]
    done = subprocess.run(
        command,
        cwd=EXAMPLES.parent,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    return [ast.literal_eval(one) for one in LIST.findall(done.stdout)]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return lambda name: importlib.import_module(name)


def test_two_processes_of_torch_end_where_one_does(example):
    """With what torchrun tells each of them."""
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    both = printed("distributed_pyro.py", "torch pyro_moments", "20", **where)
    alone = example("distributed_pyro").train(20, 0, 1)
    assert len(both) == 2
    for found in both:
        np.testing.assert_allclose(found, alone, atol=1e-5)


def test_two_processes_of_jax_end_where_one_does(example):
    arguments = [f"localhost:{free_port()}", "NUMBER", "2", "20"]
    found = printed("distributed_numpyro.py", "numpyro_moments", *arguments)
    with small_programs.by_numpy():
        alone = example("distributed_numpyro").train(20)
    assert len(found) == 2
    for parts in found:
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
