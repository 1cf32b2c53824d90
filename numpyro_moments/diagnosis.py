"""Why an evaluation failed: causes outside the rules, found after the failure.

Only arrays that are known are looked at: inside ``jax.jit`` arguments have shapes, but no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.primitives import Messenger

from moment_calculus.hosts.diagnosis import (
    empty_batch,
    named_arguments,
    not_finite,
    weights_in_plates,
)


@contextmanager
def diagnosed(model: Callable, args: tuple, kwargs: dict) -> Iterator[None]:
    """Replace the errors of a run by refusals that name the cause, where it is known.

    Args:
        model: NumPyro model.
        args: its arguments.
        kwargs: its keyword arguments.

    Raises:
        UnsupportedMoments: if the batch is empty, an input is not finite, or weights were read
            inside a plate; any other error passes unchanged.
    """
    try:
        yield
    except ZeroDivisionError as error:
        refuse_empty_inputs(model, args, kwargs, error)
        raise
    except (TypeError, ValueError) as error:  # JAX's own of shapes, refusals, invalid parameters
        if "invalid" in str(error):
            refuse_infinite_inputs(model, args, kwargs, error)
        _refuse_weights_in_plates(model, args, kwargs, error)
        raise


def refuse_empty_inputs(model: Callable, args: tuple, kwargs: dict, error: Exception) -> None:
    """Refuse a batch without elements; arguments as in :func:`diagnosed`."""
    for name, array in _arrays(model, args, kwargs):
        if np.size(array) == 0:
            raise empty_batch(name, np.shape(array)) from error


def refuse_infinite_inputs(
    model: Callable, args: tuple, kwargs: dict, error: Exception | None = None
) -> None:
    """Refuse known inputs that are NaN or infinite; arguments as in :func:`diagnosed`."""
    for name, array in _arrays(model, args, kwargs):
        _refuse_infinite(f"input '{name}' of the model", array, error)


def refuse_infinite_data(name: str, site: Mapping[str, Any]) -> None:
    """Refuse observations that are NaN or infinite, if they are known.

    Args:
        name: the observed site.
        site: of the model's trace.
    """
    _refuse_infinite(f"the data of observed site '{name}'", site["value"])


def explain_infinite_loss(
    trace: Mapping[str, Any], model: Callable, args: tuple, kwargs: dict
) -> None:
    """Refuse the data or the inputs that made a loss infinite or NaN, if they did.

    Args:
        trace: the model's trace: its sites by name.
        model: NumPyro model.
        args: its arguments.
        kwargs: its keyword arguments.
    """
    for name, site in trace.items():
        if site["type"] == "sample" and site["is_observed"]:
            refuse_infinite_data(name, site)
    refuse_infinite_inputs(model, args, kwargs)


def _refuse_infinite(what: str, data: Any, error: Exception | None = None) -> None:
    if not _is_known(data) or not jnp.issubdtype(data.dtype, jnp.floating):
        return
    finite = np.isfinite(np.asarray(data))
    if finite.all():
        return
    places = np.argwhere(~finite)
    raise not_finite(what, places.tolist(), finite.size, replacement="jnp.nan_to_num") from error


def _is_known(data: Any) -> bool:
    return isinstance(data, np.ndarray | jax.Array) and not isinstance(data, jax.core.Tracer)


def _arrays(model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
    for name, argument in named_arguments(_unwrapped(model), args, kwargs).items():
        for part in jax.tree.leaves(argument):
            if isinstance(part, np.ndarray | jax.Array):
                yield name, part


def _unwrapped(model: Any) -> Any:
    """The function inside NumPyro's handlers."""
    while isinstance(model, Messenger) and model.fn is not None:
        model = model.fn
    return model


def _refuse_weights_in_plates(model: Callable, args: tuple, kwargs: dict, error: Exception) -> None:
    refusal = weights_in_plates(_weights_in_plates(model, args, kwargs), error)
    if refusal is not None:
        raise refusal from error


def _weights_in_plates(model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, str]]:
    """Matrices, and vectors of a network's parameters, with the plate they are inside."""
    recorder = _Recorder()
    # It is the run that failed: the sites until then are what counts.
    with suppress(Exception), handlers.block(), recorder, handlers.seed(rng_seed=0):
        jax.eval_shape(lambda: (model(*args, **kwargs), None)[1])
    for message in recorder.sites:
        plates = [frame.name for frame in message["cond_indep_stack"]]
        in_module = "/" in message["name"]  # as random_flax_module names them
        if plates and message["fn"].event_dim >= (1 if in_module else 2):
            yield message["name"], plates[0]


class _Recorder(Messenger):
    """Notes the latent sites of a run."""

    def __init__(self) -> None:
        super().__init__(None)
        self.sites: list[Any] = []

    def process_message(self, msg: Any) -> None:
        """Note a latent site."""
        if msg["type"] == "sample" and not msg["is_observed"]:
            self.sites.append({**msg, "cond_indep_stack": list(msg["cond_indep_stack"])})
