"""Explain why an evaluation failed if the cause is outside the rules, such as the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from pyro import poutine
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus.errors import UnsupportedMoments, raising_line
from moment_calculus.objectives.failure_causes import Diagnosis, named_arguments
from pyro_moments.evaluation.precision import mixed_precision_error
from pyro_moments.evaluation.tensor import MomentTensor


class _InPyro(Diagnosis):
    invalid, invalid_message = (ValueError,), "invalid values"
    shape_errors = (RuntimeError, UnsupportedMoments)
    replacement = "torch.nan_to_num"

    def arrays(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
        function = getattr(poutine.unwrap(model), "forward", poutine.unwrap(model))
        for name, argument in named_arguments(function, args, kwargs).items():
            for part in argument if isinstance(argument, tuple | list) else (argument,):
                if isinstance(part, torch.Tensor) and not isinstance(part, MomentTensor):
                    yield name, part

    def indices_not_finite(self, data: Any) -> tuple[list[list[int]], int]:
        if not isinstance(data, torch.Tensor) or isinstance(data, MomentTensor):
            return [], 0
        if not data.is_floating_point() or bool(torch.isfinite(data).all()):
            return [], 0
        return torch.nonzero(~torch.isfinite(data)).tolist(), data.numel()

    def weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict
    ) -> Iterator[tuple[str, str]]:
        """Yield matrices in plates, and vectors that are a PyroSample of a module."""
        recorder = _Recorder()
        # This run fails as before; the sites before the failure are enough.
        with suppress(Exception), poutine.block(), recorder, torch.no_grad():
            model(*args, **kwargs)
        in_module = isinstance(poutine.unwrap(model), PyroModule)
        for msg in recorder.sites:
            plates = [frame.name for frame in msg["cond_indep_stack"] if frame.vectorized]
            if plates and msg["fn"].event_dim >= (1 if in_module else 2):
                yield msg["name"], plates[0]


class _Recorder(Messenger):
    """Records the latent sites of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: list[Any] = []

    def _pyro_sample(self, msg: Any) -> None:
        if not msg["is_observed"] and not site_is_subsample(msg):
            self.sites.append(msg)


_DIAGNOSIS = _InPyro()


@contextmanager
def diagnose_errors(model: Callable, args: tuple, kwargs: dict) -> Iterator[None]:
    """Explain errors as :class:`Diagnosis` does, and those about mixed precision, too."""
    try:
        with _DIAGNOSIS.diagnose_errors(model, args, kwargs):
            yield
    except RuntimeError as error:
        inputs = {f"input '{n}'": array for n, array in _DIAGNOSIS.arrays(model, args, kwargs)}
        if (refusal := mixed_precision_error(error, inputs)) is None:
            raise
        raise refusal.located("", raising_line(error)) from error


refuse_infinite_data = _DIAGNOSIS.refuse_infinite_data
explain_infinite_loss = _DIAGNOSIS.explain_infinite_loss
