"""Explain why an evaluation failed if the cause is outside the rules, such as the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.likelihoods import families
from moment_calculus.numerics import private_apis
from moment_inference.objectives import Diagnosis, observations
from pyro_moments._host import tree_leaves, tree_map
from pyro_moments.evaluation.precision import mixed_precision_error
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.evaluation.uncertain_inputs import at_means
from pyro_moments.evaluation.wrappers import WRAPPERS


class _InPyro(Diagnosis):
    framework, as_array = "Pyro", "torch.as_tensor"
    mask, nan_to_num = "pyro.poutine.mask", "torch.nan_to_num"
    invalid_message = "invalid values"
    shape_errors = (RuntimeError, UnsupportedMoments)
    own = torch.Tensor

    def function(self, model: Any) -> Any:
        unwrapped = poutine.unwrap(model)
        return getattr(unwrapped, "forward", unwrapped)

    def leaves(self, argument: Any) -> Iterator[Any]:
        return (part for part in tree_leaves(argument) if not isinstance(part, MomentTensor))

    def mapped(self, argument: Any, function: Callable[[Any], Any]) -> Any:
        return tree_map(function, argument)

    def known(self, data: Any) -> np.ndarray | None:
        if not isinstance(data, torch.Tensor) or isinstance(data, MomentTensor):
            return None
        try:
            return data.detach().cpu().numpy() if private_apis.is_untraced() else None
        except (RuntimeError, TypeError):  # of a captured program; of a type that NumPy has not
            return None

    def is_observation(self, site: Any) -> bool:
        if site["type"] != "sample" or not site["is_observed"]:
            return False
        return not (site.get("infer") or {}).get("_deterministic")

    def accepted(self, site: Any) -> Any:
        # torch does not subtract truth values, and its Bernoulli takes no integers.
        value = site["value"]
        if not isinstance(value, torch.Tensor) or value.is_floating_point():
            return value
        binary = isinstance(families.unwrapped(site["fn"], WRAPPERS)[0], dist.Bernoulli)
        is_changed = value.dtype is torch.bool or (binary and not value.is_complex())
        return value.to(torch.get_default_dtype()) if is_changed else value

    def masks_of(self, site: Any) -> tuple[list[tuple[Any, int]], int]:
        fn = site["fn"]
        masks = [(site["mask"], fn.event_dim)]
        while isinstance(fn, WRAPPERS):
            masks += [(fn._mask, fn.event_dim)] if isinstance(fn, MaskedDistribution) else []
            fn = fn.base_dist
        return [part for part in masks if isinstance(part[0], torch.Tensor)], fn.event_dim

    def mask_of(self, site: Any) -> torch.Tensor | None:
        tensors = [mask for mask, _ in self.masks_of(site)[0]]
        shape = site["fn"].batch_shape
        try:
            return reduce(torch.logical_and, tensors).expand(shape) if tensors else None
        except RuntimeError:  # the mask has axes that the site has not
            return None

    def parts_of(self, name: str, site: Any) -> observations.Observation | None:
        fn, value = site["fn"], site["value"]
        base = families.unwrapped(fn, WRAPPERS)[0]
        if isinstance(base, dist.Unit) or not isinstance(value, torch.Tensor):
            return None
        mask = self.mask_inside(site)
        hidden = site["mask"] is False or (mask is not None and self.known(mask) is None)
        values = None if hidden else self.known(value)
        return observations.Observation(
            name,
            type(base).__name__,
            type(base).__module__.partition(".")[0] not in ("torch", "pyro", "moment_guides"),
            tuple(fn.batch_shape + fn.event_shape),
            tuple(value.shape),
            values,
            None if values is None else self._inside(base, value),
            None if mask is None else self.known(mask),
            {f.dim: f.size for f in site["cond_indep_stack"] if f.vectorized},
            (fn.event_dim, base.event_dim),
            getattr(base, "support", None) if values is not None else None,
        )

    def _inside(self, base: Any, value: torch.Tensor) -> np.ndarray | None:
        try:
            return None if isinstance(base, dist.Delta) else self.known(base.support.check(value))
        except Exception:  # of a support that is random, or that the family does not know
            return None

    def latent_sites(self, model: Callable, args: tuple, kwargs: dict) -> list[Any]:
        recorder = _Recorder()
        # This run may fail, too; the sites before the failure are enough.
        with suppress(Exception), poutine.block(), recorder, torch.no_grad():
            args, kwargs = at_means(args, kwargs)
            model(*args, **kwargs)
        return recorder.sites

    def weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict
    ) -> Iterator[tuple[str, str]]:
        """Yield matrices in plates, and vectors that are a PyroSample of a module."""
        in_module = isinstance(poutine.unwrap(model), PyroModule)
        for msg in self.latent_sites(model, args, kwargs):
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
            msg["line"] = errors.calling_line()
            self.sites.append(msg)


_DIAGNOSIS = _InPyro()


@contextmanager
def diagnose_errors(
    model: Callable, args: tuple, kwargs: dict, guide: Callable | None = None
) -> Iterator[None]:
    """Explain errors as :class:`Diagnosis` does, and those about mixed precision, too."""
    try:
        with _DIAGNOSIS.diagnose_errors(model, args, kwargs, guide):
            yield
    except (RuntimeError, ValueError) as error:  # the latter of recurrent layers
        inputs = {f"input '{n}'": array for n, array in _DIAGNOSIS.arrays(model, args, kwargs)}
        if (refusal := mixed_precision_error(error, inputs)) is None:
            raise
        raise refusal.located("", errors.raising_line(error)) from error


refuse_infinite_data = _DIAGNOSIS.refuse_infinite_data
explain_infinite_loss = _DIAGNOSIS.explain_infinite_loss
observe = _DIAGNOSIS.observe
mask_of = _DIAGNOSIS.mask_of
refuse_nonfinite_inputs = _DIAGNOSIS.refuse_nonfinite_inputs
explain_predictions = _DIAGNOSIS.explain_predictions
check_function = _DIAGNOSIS.check_function
prepared = _DIAGNOSIS.prepared
