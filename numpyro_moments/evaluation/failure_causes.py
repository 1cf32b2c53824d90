"""Explain why an evaluation failed if the cause is outside the rules, such as the data.

Only arrays with known values are checked: inside ``jax.jit`` arguments have shapes, but
no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.primitives import Messenger

from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.objectives.failure_causes import Diagnosis, named_arguments


class _InNumPyro(Diagnosis):
    # JAX and NumPyro raise both for invalid parameters, and for shapes that do not fit.
    invalid, invalid_message = (TypeError, ValueError), "invalid"
    shape_errors = (TypeError, ValueError)
    replacement = "jnp.nan_to_num"

    def arrays(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
        for name, argument in named_arguments(_unwrapped(model), args, kwargs).items():
            for part in jax.tree.leaves(argument):
                if isinstance(part, np.ndarray | jax.Array):
                    yield name, part

    def indices_not_finite(self, data: Any) -> tuple[list[list[int]], int]:
        if not _is_known(data) or not jnp.issubdtype(data.dtype, jnp.floating):
            return [], 0
        finite = np.isfinite(np.asarray(data))
        return np.argwhere(~finite).tolist(), finite.size

    def weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict
    ) -> Iterator[tuple[str, str]]:
        """Yield matrices in plates, and vectors that are parameters of a module."""
        recorder = _Recorder()
        # This run fails as before; the sites before the failure are enough.
        with suppress(Exception), handlers.block(), recorder, handlers.seed(rng_seed=0):
            jax.eval_shape(lambda: (model(*args, **kwargs), None)[1])
        for message in recorder.sites:
            plates = [frame.name for frame in message["cond_indep_stack"]]
            in_module = "/" in message["name"]  # the names of random_flax_module
            if plates and message["fn"].event_dim >= (1 if in_module else 2):
                yield message["name"], plates[0]


def _is_known(data: Any) -> bool:
    return isinstance(data, np.ndarray | jax.Array) and not is_traced(data)


def _unwrapped(model: Any) -> Any:
    """Return the function inside NumPyro's handlers."""
    while isinstance(model, Messenger) and model.fn is not None:
        model = model.fn
    return model


class _Recorder(Messenger):
    """Records the latent sites of a run."""

    def __init__(self) -> None:
        super().__init__(None)
        self.sites: list[Any] = []

    def process_message(self, msg: Any) -> None:
        """Record a latent site."""
        if msg["type"] == "sample" and not msg["is_observed"]:
            self.sites.append({**msg, "cond_indep_stack": list(msg["cond_indep_stack"])})


_DIAGNOSIS = _InNumPyro()
diagnose_errors = _DIAGNOSIS.diagnose_errors
refuse_infinite_data = _DIAGNOSIS.refuse_infinite_data
explain_infinite_loss = _DIAGNOSIS.explain_infinite_loss
