"""Explain why an evaluation failed if the cause is outside the rules, such as the data.

Only arrays with known values are checked: inside ``jax.jit`` arguments have shapes, but
no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

from moment_calculus import errors
from moment_calculus.numerics import private_apis
from moment_inference.objectives import Diagnosis, observations
from numpyro_moments.evaluation.arguments import unwrapped
from numpyro_moments.evaluation.uncertain_inputs import at_means
from numpyro_moments.evaluation.wrappers import WRAPPERS

UNDRAWN = "_undrawn"  # in the "infer" of sites whose observation is a placeholder


class _InNumPyro(Diagnosis):
    framework, as_array = "NumPyro", "jnp.asarray"
    mask, nan_to_num = "numpyro.handlers.mask", "jnp.nan_to_num"
    invalid_message = "invalid"
    shape_errors = (TypeError, ValueError)
    own = (jax.Array, np.ndarray)

    def function(self, model: Any) -> Any:
        return unwrapped(model)

    def leaves(self, argument: Any) -> Iterator[Any]:
        return iter(jax.tree.leaves(argument))

    def mapped(self, argument: Any, function: Callable[[Any], Any]) -> Any:
        return jax.tree.map(function, argument)

    def known(self, data: Any) -> np.ndarray | None:
        if not isinstance(data, np.ndarray | jax.Array) or private_apis.is_traced(data):
            return None
        if jax.dtypes.issubdtype(data.dtype, jax.dtypes.prng_key):
            return None
        array = np.asarray(data)
        return array.astype(np.float32) if array.dtype == jnp.bfloat16 else array

    def is_observation(self, site: Any) -> bool:
        if site["type"] != "sample" or not site["is_observed"]:
            return False
        return not (site.get("infer") or {}).get(UNDRAWN)

    def masks_of(self, site: Any) -> tuple[list[tuple[Any, int]], int]:
        fn, masks = site["fn"], []
        while isinstance(fn, WRAPPERS):
            if isinstance(fn, dist.MaskedDistribution) and np.ndim(fn._mask):
                known = not private_apis.is_traced(fn._mask)  # inside of a trace JAX traces others
                masks.append((np.asarray(fn._mask) if known else fn._mask, fn.event_dim))
            fn = fn.base_dist
        return masks, fn.event_dim

    def mask_of(self, site: Any) -> jax.Array | None:
        arrays = [mask for mask, _ in self.masks_of(site)[0]]
        shape = site["fn"].batch_shape
        try:
            return jnp.broadcast_to(reduce(jnp.logical_and, arrays), shape) if arrays else None
        except ValueError:  # the mask has axes that the site has not
            return None

    def parts_of(self, name: str, site: Any) -> observations.Observation | None:
        fn, value, base = site["fn"], site["value"], site["fn"]
        hidden = False
        while isinstance(base, WRAPPERS):
            if isinstance(base, dist.MaskedDistribution):
                is_traced = private_apis.is_traced(base._mask)
                hidden = hidden or is_traced or not np.asarray(base._mask).any()
            base = base.base_dist
        if isinstance(base, dist.Unit) or not hasattr(value, "shape"):
            return None
        values = None if hidden else self.known(value)
        return observations.Observation(
            name,
            type(base).__name__,
            type(base).__module__.partition(".")[0] not in ("numpyro", "moment_guides"),
            (*fn.batch_shape, *fn.event_shape),
            tuple(value.shape),
            values,
            None if values is None else self._inside(base, values),
            None if hidden or (mask := self.mask_inside(site)) is None else np.asarray(mask),
            {frame.dim: frame.size for frame in site["cond_indep_stack"]},
            (fn.event_dim, base.event_dim),
            getattr(base, "support", None) if values is not None else None,
        )

    def _inside(self, base: Any, value: np.ndarray) -> np.ndarray | None:
        try:
            # Bounds may be values of latent sites, at which a training only begins.
            bounds = [b for b in vars(base.support).values() if isinstance(b, jax.Array)]
            is_random = any(jnp.issubdtype(b.dtype, jnp.floating) for b in bounds)
            with jax.ensure_compile_time_eval():
                is_open = is_random or isinstance(base, dist.Delta)
                inside = None if is_open else base.support(value)
            return None if inside is None or private_apis.is_traced(inside) else np.asarray(inside)
        except Exception:  # of a support that is random, or that the family does not know
            return None

    def latent_sites(self, model: Callable, args: tuple, kwargs: dict) -> list[Any]:
        recorder = _Recorder()
        # This run may fail, too; the sites before the failure are enough.
        with suppress(Exception), handlers.block(), recorder, handlers.seed(rng_seed=0):
            args, kwargs = at_means(args, kwargs)
            jax.eval_shape(lambda: (model(*args, **kwargs), None)[1])
        return recorder.sites

    def weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict
    ) -> Iterator[tuple[str, str]]:
        """Yield matrices in plates, and vectors that are parameters of a module."""
        for message in self.latent_sites(model, args, kwargs):
            plates = [frame.name for frame in message["cond_indep_stack"]]
            in_module = "/" in message["name"]  # the names of random_flax_module
            if plates and message["fn"].event_dim >= (1 if in_module else 2):
                yield message["name"], plates[0]


class _Recorder(Messenger):
    """Records the latent sites of a run."""

    def __init__(self) -> None:
        super().__init__(None)
        self.sites: list[Any] = []

    def process_message(self, msg: Any) -> None:
        """Record a latent site."""
        if msg["type"] == "sample" and not msg["is_observed"]:
            stack = list(msg["cond_indep_stack"])
            self.sites.append({**msg, "cond_indep_stack": stack, "line": errors.calling_line()})


_DIAGNOSIS = _InNumPyro()
diagnose_errors = _DIAGNOSIS.diagnose_errors
refuse_infinite_data = _DIAGNOSIS.refuse_infinite_data
explain_infinite_loss = _DIAGNOSIS.explain_infinite_loss
observe = _DIAGNOSIS.observe
mask_of = _DIAGNOSIS.mask_of
refuse_nonfinite_inputs = _DIAGNOSIS.refuse_nonfinite_inputs
explain_predictions = _DIAGNOSIS.explain_predictions
check_function = _DIAGNOSIS.check_function
