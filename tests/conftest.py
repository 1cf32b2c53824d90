"""One thread for each worker, a fresh parameter store and a fixed seed for each test."""

import ctypes
import gc
import os
import random

from tests.checks import XLA_FLAGS

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)

# Inductor would compile a program for each set of vector instructions, to see whether it can.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import jax
import numpy as np
import pyro
import pytest
import torch

from tests.checks import sampled, slow, small_programs
from tests.fitting.models import HOSTS, fresh

torch.set_num_threads(1)


def pytest_configure(config):
    """Their hooks mark the slow tests, and leave examples to other commits."""
    for plugin in (slow, sampled):
        config.pluginmanager.register(plugin)


def _keep_freed_memory():
    """Fresh pages for every large array cost as much as its arithmetic: glibc is to reuse them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for setting in (-1, -3):  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
            mallopt(setting, 1 << 30)


_keep_freed_memory()


def pytest_collection_finish():
    """Modules and programs live on: looking for garbage among them takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True)
def _fresh_pyro():
    """``pyro.set_rng_seed``, which takes milliseconds for devices that are not in use."""
    pyro.clear_param_store()
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


_STATES = {}


@pytest.fixture(autouse=True)
def _module_generators_start_anew(request):
    """The numbers that a test draws from a generator of its module depend on no other test."""
    for name in ("rng", "generator"):
        generator, key = getattr(request.module, name, None), (request.module.__name__, name)
        if isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            bits.state = _STATES.setdefault(key, bits.state)
        elif isinstance(generator, torch.Generator):
            generator.set_state(_STATES.setdefault(key, generator.get_state()))


@pytest.fixture(params=HOSTS)
def host(request):
    """Each framework, without parameters of other tests."""
    return fresh(request.param)


FOLDERS = {
    "backward",
    "criticism",
    "dropout",
    "fitting",
    "mistakes",
    "optimisation",
    "propagation",
    "response",
    "rulebooks",
    "verbs",
}
WHOLE = {"functions", "likelihoods", "numpyro"}
HOSTS_IN_NAMES = ("numpyro", "jax", "hosts")


OF_COMPILING = {"test_programs.py", "test_lowering.py"}  # what is compiled, and how often


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """JAX's programs by NumPy, for NumPyro's rows of what does not depend on XLA."""
    name, parts = item.nodeid.lower(), set(item.path.relative_to(item.config.rootpath).parts)
    is_row = FOLDERS & parts and any(host in name for host in HOSTS_IN_NAMES)
    if item.path.name not in OF_COMPILING and (is_row or WHOLE & parts):
        with small_programs.by_numpy():
            return (yield)
    return (yield)


@pytest.fixture
def by_numpy():
    """JAX's programs by NumPy, for tests of which are traced, beside others that compile them."""
    with small_programs.by_numpy():
        yield


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def double_precision_in_jax():
    with jax.enable_x64(True):
        yield
