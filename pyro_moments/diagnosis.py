"""Why an evaluation failed: causes outside the rules, found after the failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from pyro import poutine
from pyro.nn import PyroModule
from pyro.poutine import Trace
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus.hosts.diagnosis import (
    empty_batch,
    named_arguments,
    not_finite,
    weights_in_plates,
)
from moment_calculus.refusals.errors import UnsupportedMoments
from pyro_moments.evaluation.tensor import MomentTensor


@contextmanager
def diagnosed(model: Callable, args: tuple, kwargs: dict) -> Iterator[None]:
    """Replace the errors of a run by refusals that name the cause, where it is known.

    Args:
        model: Pyro model.
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
    except ValueError as error:
        if "invalid values" in str(error):
            refuse_infinite_inputs(model, args, kwargs, error)
        raise
    except (RuntimeError, UnsupportedMoments) as error:
        _refuse_weights_in_plates(model, args, kwargs, error)
        raise


def refuse_empty_inputs(model: Callable, args: tuple, kwargs: dict, error: Exception) -> None:
    """Refuse a batch without elements; arguments as in :func:`diagnosed`."""
    for name, tensor in _tensors(model, args, kwargs):
        if tensor.numel() == 0:
            raise empty_batch(name, tensor.shape) from error


def refuse_infinite_inputs(
    model: Callable, args: tuple, kwargs: dict, error: Exception | None = None
) -> None:
    """Refuse certain inputs that are NaN or infinite; arguments as in :func:`diagnosed`."""
    for name, tensor in _tensors(model, args, kwargs):
        _refuse_infinite(f"input '{name}' of the model", tensor, error)


def refuse_infinite_data(name: str, site: Any) -> None:
    """Refuse observations that are NaN or infinite.

    Args:
        name: the observed site.
        site: its node in the model's trace.
    """
    _refuse_infinite(f"the data of observed site '{name}'", site["value"])


def explain_infinite_loss(trace: Trace, model: Callable, args: tuple, kwargs: dict) -> None:
    """Refuse the data or the inputs that made a loss infinite or NaN, if they did.

    Args:
        trace: the model's trace.
        model: Pyro model.
        args: its arguments.
        kwargs: its keyword arguments.
    """
    for name, site in trace.nodes.items():
        if site["type"] == "sample" and site["is_observed"]:
            refuse_infinite_data(name, site)
    refuse_infinite_inputs(model, args, kwargs)


def _refuse_infinite(what: str, data: Any, error: Exception | None = None) -> None:
    if not isinstance(data, torch.Tensor) or isinstance(data, MomentTensor):
        return
    if not data.is_floating_point() or bool(torch.isfinite(data).all()):
        return
    places = torch.nonzero(~torch.isfinite(data))
    raise not_finite(what, places.tolist(), data.numel(), replacement="torch.nan_to_num") from error


def _tensors(model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, torch.Tensor]]:
    function = getattr(poutine.unwrap(model), "forward", poutine.unwrap(model))
    for name, argument in named_arguments(function, args, kwargs).items():
        for part in argument if isinstance(argument, tuple | list) else (argument,):
            if isinstance(part, torch.Tensor) and not isinstance(part, MomentTensor):
                yield name, part


def _refuse_weights_in_plates(model: Callable, args: tuple, kwargs: dict, error: Exception) -> None:
    refusal = weights_in_plates(_weights_in_plates(model, args, kwargs), error)
    if refusal is not None:
        raise refusal from error


def _weights_in_plates(model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, str]]:
    """Matrices, and vectors that a module holds as PyroSample, with the plate they are inside."""
    recorder = _Recorder()
    # It is the run that failed: the sites until then are what counts.
    with suppress(Exception), poutine.block(), recorder, torch.no_grad():
        model(*args, **kwargs)
    in_module = isinstance(poutine.unwrap(model), PyroModule)
    for msg in recorder.sites:
        plates = [frame.name for frame in msg["cond_indep_stack"] if frame.vectorized]
        if plates and msg["fn"].event_dim >= (1 if in_module else 2):
            yield msg["name"], plates[0]


class _Recorder(Messenger):
    """Notes the latent sites of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: list[Any] = []

    def _pyro_sample(self, msg: Any) -> None:
        if not msg["is_observed"] and not site_is_subsample(msg):
            self.sites.append(msg)
