"""Check the calls of public functions, and make tensors of arrays, lists and frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pyro import poutine

from moment_calculus.objectives.calls import Calls
from moment_guides.pyro.ownership import has_free_parameters


def as_tensor(array: np.ndarray, double: bool = False) -> torch.Tensor:
    """Return a tensor of an array, floats in the precision of the parameters."""
    tensor = torch.from_numpy(np.array(array))  # torch warns of arrays that are read-only
    dtype = torch.float64 if double else torch.get_default_dtype()
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def is_untrained(guide: Any, params: Any = None) -> bool:
    """Return whether a guide has no parameters, none in Pyro's store, and none to load."""
    is_module = isinstance(guide, torch.nn.Module)
    if not is_module or next(guide.parameters(), None) is not None:
        return False
    is_loaded = getattr(guide, "_pending_state", None) is not None
    return not is_loaded and not has_free_parameters(guide)


OF_NUMPYRO = ("numpyro.", "numpyro_moments.", "moment_guides.numpyro.", "jax.", "optax.")
ADAM = "pyro.optim.Adam({'lr': 0.01})"
CALLS = Calls(
    "Pyro", OF_NUMPYRO, poutine.unwrap, torch.Tensor, as_tensor, ADAM, is_untrained, ("torch.",)
)
checked = CALLS.checked
