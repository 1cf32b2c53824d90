"""Private APIs of the frameworks are used in three files, and each does what these need it for.

Where a release breaks one of them, the test with its name fails.
"""

import importlib.metadata
import inspect
import re

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch.fx.experimental.proxy_tensor import make_fx

from moment_calculus.numerics import private_apis as low
from numpyro_moments import _host as numpyro_host
from pyro_moments import _host as pyro_host
from tests.project.counts import ROOT, private_files
from tests.project.jax_apis import JAX

FILES = (low, numpyro_host, pyro_host)
PACKAGES = {"torch": "torch", "JAX": "jax", "Pyro": "pyro-ppl", "NumPyro": "numpyro"}


def test_other_files_use_public_apis():
    places = {str(ROOT / name) for name in private_files(ROOT)}
    assert places == {module.__file__ for module in FILES}


def functions():
    for module in FILES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield name, function


@pytest.mark.parametrize(("name", "function"), list(functions()))
def test_functions_name_the_version_that_they_were_checked_with(name, function):
    framework, version = re.search(r"\((\w+) ([\d.]+)\)\.", function.__doc__).groups()
    installed = importlib.metadata.version(PACKAGES[framework])
    assert installed.startswith(version), f"check {name} with {framework} {installed}"
    assert name in {**TORCH, **JAX}, f"{name} has no test here"


def transformed():
    seen = []
    torch.func.vmap(lambda x: (seen.append(low.is_transformed()), x)[1])(torch.ones(2))
    return seen == [True] and not low.is_transformed()


def traced_by_torch():
    seen = []
    make_fx(lambda x: (seen.append(low.is_untraced()), x + 1)[1])(torch.ones(2))
    return seen == [False] and low.is_untraced()


def forward_mode():
    with torch.autograd.forward_ad.dual_level():
        inside = low.has_forward_derivatives()
    return inside and not low.has_forward_derivatives()


def autograd_again():
    with torch._C._AutoDispatchBelowAutograd(), low.autograd_inside_operation():
        x = torch.ones(2, requires_grad=True)
        return (x * x).sum().requires_grad


def active_handlers():
    with poutine.block() as block:
        return list(pyro_host.handlers()) == [block] and pyro_host.handlers() is not None


def stored_parameter():
    pyro.clear_param_store()
    pyro.param("scale", torch.tensor(2.0), constraint=dist.constraints.positive)
    return bool(pyro_host.unconstrained_parameter("scale") == torch.tensor(2.0).log())


class Shell(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "rule"

    __torch_dispatch__ = __torch_function__


def shells():
    shell = pyro_host.make_shell(Shell, (3, 4), dtype=torch.float64)
    size = pyro_host.call_plainly(torch.Tensor.size, (shell,), {})
    return size == (3, 4) and shell.size() == "rule"


def versions():
    x = torch.ones(2)
    x.add_(1.0)
    return pyro_host.changes_in_place(x) == 1


def hooks():
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    x.register_hook(lambda gradient: None)
    return pyro_host.has_hooks(x) and not pyro_host.has_hooks(y)


def randomness_of_vmap():
    seen = []
    for randomness in ("error", "different"):
        function = lambda x: (seen.append(pyro_host.vmap_forbids_randomness()), x)[1]  # noqa: E731
        torch.vmap(function, randomness=randomness)(torch.ones(2))
    return seen == [True, False] and not pyro_host.vmap_forbids_randomness()


def tree(check):
    leaves, structure = pyro_host.tree_flatten({"a": [1, 2], "b": (3,)})
    return check(leaves, structure)


def container():
    kind = type("Pair", (list,), {})
    pyro_host.register_container(kind, lambda pair: (list(pair), "b"), lambda parts, b: [b, *parts])
    return pyro_host.tree_map(lambda x: -x, kind([1, 2])) == ["b", -1, -2]


def shared_mode():
    with pyro_host.shared_fake_tensors() as mode:
        graph = make_fx(lambda x: x + torch.ones(2))(torch.ones(2))
    return mode is not None and bool((graph(torch.ones(2)) == 2).all())


def compiled():
    x = torch.eye(2) + 1
    # a product of matrices calls a kernel of torch, so that no C++ is compiled
    run = pyro_host.compile_graph(make_fx(lambda x: [torch.mm(x, x)])(x), [x], {})
    return torch.allclose(run([x])[0], x @ x)


TORCH = {
    "is_transformed": transformed,
    "is_untraced": traced_by_torch,
    "has_forward_derivatives": forward_mode,
    "autograd_inside_operation": autograd_again,
    "handlers": active_handlers,
    "unconstrained_parameter": stored_parameter,
    "make_shell": shells,
    "call_plainly": shells,
    "changes_in_place": versions,
    "has_hooks": hooks,
    "vmap_forbids_randomness": randomness_of_vmap,
    "tree_map": lambda: pyro_host.tree_map(lambda a, b: a + b, (1, [2]), (3, [4])) == (4, [6]),
    "tree_leaves": lambda: pyro_host.tree_leaves({"a": [1, 2], "b": (3,)}) == [1, 2, 3],
    "tree_flatten": lambda: tree(lambda leaves, _: leaves == [1, 2, 3]),
    "tree_unflatten": lambda: tree(
        lambda _, s: pyro_host.tree_unflatten([4, 5, 6], s) == {"a": [4, 5], "b": (6,)}
    ),
    "register_container": container,
    "shared_fake_tensors": shared_mode,
    "compile_graph": compiled,
    "DispatchMode": lambda: pyro_host.DispatchMode.__enter__ is not None,
    "is_all_true": lambda: bool(pyro_host.is_all_true(torch.ones(2, dtype=torch.bool))),
    "VMAP_FRAME": lambda: pyro_host.VMAP_FRAME in frames_of_vmap(),
}


def frames_of_vmap():
    frames = []

    def function(x):
        frame = inspect.currentframe()
        while frame is not None:
            frames.append((frame.f_globals.get("__name__"), frame.f_code.co_name))
            frame = frame.f_back
        return x

    torch.vmap(function)(torch.ones(2))
    return frames


@pytest.mark.parametrize("name", TORCH)
def test_torch_and_pyro(name):
    assert TORCH[name]()


@pytest.mark.parametrize("name", JAX)
def test_jax_and_numpyro(name):
    assert JAX[name]()
