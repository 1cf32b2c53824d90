"""Check the calls of public functions, and make tensors of arrays, lists and frames."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.util import get_rng_state, set_rng_state

from moment_guides.pyro import has_free_parameters
from moment_inference.objectives import Calls
from pyro_moments._host import tree_leaves


def as_tensor(array: np.ndarray | torch.Tensor, double: bool = False) -> torch.Tensor:
    """Return a tensor in the precision of the parameters, of an array or of a double tensor.

    Of an array it is on the default device, as by ``torch.as_tensor``.
    """
    dtype = torch.float64 if double else torch.get_default_dtype()
    if isinstance(array, torch.Tensor):  # reduced precision is the user's choice
        return array.to(dtype) if array.dtype is torch.float64 else array
    tensor = torch.from_numpy(np.array(array))  # torch warns of arrays that are read-only
    tensor = tensor.to(torch.get_default_device())
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def is_untrained(guide: Any, params: Any = None) -> bool:
    """Return whether a guide has no parameters, none in Pyro's store, and none to load."""
    is_module = isinstance(guide, torch.nn.Module)
    if not is_module or next(guide.parameters(), None) is not None:
        return False
    is_loaded = getattr(guide, "_pending_state", None) is not None
    return not is_loaded and not has_free_parameters(guide)


def draws_doubles(model: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Return whether a model that gets doubles has latent sites in double precision itself."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if all(tensor.dtype is not torch.float64 for tensor in tensors):
        return False
    if torch.get_default_dtype() is torch.float64:
        return True
    state, latent = get_rng_state(), _LatentTypes()
    try:
        # Where doubles meet parameters of single precision, the model fails, and they are cast.
        store = pyro.get_param_store().scope()
        with store, suppress(Exception), torch.no_grad(), poutine.block(), latent:
            model(*args, **kwargs)
    finally:
        set_rng_state(state)
    return torch.float64 in latent.dtypes


class _LatentTypes(Messenger):
    """Records the types of latent sites."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def _pyro_post_sample(self, msg: Any) -> None:
        if not msg["is_observed"] and isinstance(msg["value"], torch.Tensor):
            self.dtypes.add(msg["value"].dtype)


OF_NUMPYRO = ("numpyro.", "numpyro_moments.", "moment_guides.numpyro.", "jax.", "optax.")
ADAM = "pyro.optim.Adam({'lr': 0.01})"
CALLS = Calls(
    "Pyro",
    OF_NUMPYRO,
    poutine.unwrap,
    torch.Tensor,
    as_tensor,
    ADAM,
    is_untrained,
    ("torch.",),
    draws_doubles=draws_doubles,
)
checked = CALLS.checked
