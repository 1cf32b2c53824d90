"""No tensor of the library is made on whatever device happens to be the default one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pyro_moments.fitting.problem import GlobalRandomState
from tests.project.distributions import ROOT

FOLDERS = ("pyro_moments", "guides/pyro", "moment_calculus", "moment_inference")
# those that ``torch.set_default_device`` changes
MAKERS = frozenset(
    "arange as_tensor asarray empty eye full linspace logspace normal ones rand randint randn "
    "randperm scalar_tensor tensor tril_indices triu_indices zeros".split()
)


def names_no_device(source: str) -> Iterator[str]:
    """Yield what makes tensors without saying where, with its line."""
    tree = ast.parse(source)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        is_told = any(option.arg in ("device", None) for option in call.keywords)
        for part in [*call.args, *([] if is_told else [call.func])]:
            module, _, name = ast.unparse(part).rpartition(".")
            if module == "torch" and name in MAKERS:
                yield f"{call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_tensor_is_made_on_a_named_device(folder):
    files: list[Path] = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [f"{path}:{each}" for path in files for each in names_no_device(path.read_text())]
    assert found == []


@pytest.mark.parametrize("line", ["torch.zeros(3)", "map(torch.as_tensor, parts)"])
def test_a_tensor_without_a_device_is_noticed(line):
    assert list(names_no_device(line)) != []
    assert list(names_no_device('torch.zeros(3, device="cpu")')) == []


def test_random_states_stay_on_the_cpu():
    state = GlobalRandomState()
    before = state.get()
    expected = torch.rand(3)
    arrays = before | {"torch": before["torch"].numpy()}  # as a checkpoint has it
    with torch.device("meta"):
        state.set(arrays)
    assert torch.equal(torch.rand(3), expected)
