"""Run a guide and a model with draws of the latent sites, or with their means."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.primitives import Messenger

from moment_calculus import errors
from moment_calculus.values import Propagation
from moment_guides.numpyro import DroppedWeight
from moment_inference import MaskedSite, SharedDrawNeeded
from moment_inference.objectives import data_plates
from numpyro_moments.evaluation.uncertain_inputs import at_mean
from numpyro_moments.particles.evaluation import Evaluation, draw_operand, evaluate, require_array
from numpyro_moments.particles.undrawn import (
    Rows,
    Undrawn,
    UndrawnRows,
    masked_site_p,
    normal_site_p,
)
from numpyro_moments.rules.programs.units import AT_MEAN
from numpyro_moments.sites.messenger import LatentVectors, model_site
from numpyro_moments.sites.random_watch import check_no_silent_draws
from numpyro_moments.sites.terms import (
    dropout_posterior,
    gaussian_base,
    value_at_mean,
    without_wrappers,
)
from numpyro_moments.sites.traces import (
    Traces,
    check_masked_rows,
    moment_traces,
    observed_plates,
    observing,
    site_parts,
    trace_sites,
)


@dataclass(frozen=True)
class Drawing:
    """How latent sites get their values in one run."""

    is_mean: bool = False  # whether means replace draws
    # Finds the plates of the data, whose rows may have their own noise; by default any
    # axis may.
    data: Callable[[dict[str, Any]], data_plates.DataPlates] | None = None
    # Observed sites keep their distribution, sites without observations are not drawn,
    # and each latent site is drawn once for all rows.
    predicting: bool = False


class _DrawMessenger(Messenger):
    """Draws latent sites; Normal ones by a primitive that is evaluated as late as possible."""

    def __init__(self, fn: Callable, drawing: Drawing) -> None:
        super().__init__(fn)
        self.drawing, self.vectors = drawing, LatentVectors(fn, ())

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        name, fn = model_site(msg), msg["fn"]
        if isinstance(without_wrappers(fn), dist.Delta):
            msg["fn"] = self.vectors.values.get(msg["name"], fn)
            return
        key = msg["kwargs"]["rng_key"]
        part = partial(_draw_slice, key)
        self.vectors.take_apart(msg["name"], fn, part, part)
        if (dropped := dropout_posterior(fn)) is not None:
            msg["value"] = _bind_masked(key, name, dropped)
            return
        base, transforms = gaussian_base(fn)
        if base is not None and not transforms and not msg["kwargs"].get("sample_shape"):
            msg["value"] = _bind_normal(key, name, base, fn.shape())
        elif self.drawing.is_mean:
            msg["value"] = value_at_mean(name, fn)
        elif not fn.has_rsample:
            raise errors.not_reparameterised(
                name, without_wrappers(fn), framework="NumPyro", by_name=False
            )


def drawn_traces(
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    parameters: dict[str, Any],  # values of the param and mutable sites
    key: Any,
    drawing: Drawing,
    consume: Callable[[Traces], Any],
) -> Any:
    """Run guide and model as NumPyro's ELBOs do, with Normal sites drawn late; consume the traces.

    ``consume`` makes the result from the traces. Observed sites have their ``log_prob``
    [*batch] beside a distribution that was only traced. A Normal latent site has the
    moments of its posterior as value, and what draws it as ``undrawn``.
    """
    messengers = partial(_DrawMessenger, drawing=drawing), observing(drawing.predicting)
    parts_of = partial(site_parts, scored=not drawing.predicting)
    program = model, guide, args, kwargs, parameters
    inputs = at_mean if drawing.is_mean else None
    with AT_MEAN(drawing.is_mean):
        traced = trace_sites(*program, key, messengers, parts_of, inputs)
    if drawing.is_mean:
        check_no_silent_draws(traced.jaxpr.jaxpr, traced.certain_outputs(drawing.predicting))
    dims = _dims_of_data(drawing, traced.sites[1])

    def consume_evaluation(evaluation: Evaluation) -> Any:
        outputs = traced.parts(evaluation.run(traced.jaxpr, traced.keys))
        sites = (
            {name: _evaluated_site({**sites[name]}, part, dims) for name, part in parts.items()}
            for sites, parts in zip(traced.sites, outputs, strict=True)
        )
        traces = Traces.of(*sites)
        check_masked_rows(traces.model, traces.guide)
        if drawing.is_mean and not drawing.predicting:
            moments = moment_traces(None, *program[1:], traced.keys[1], Propagation())
            traces = _with_moments(traces, moments)
        return consume(traces)

    return evaluate(consume_evaluation, drawing.is_mean, not drawing.predicting)


def _draw_slice(key: Any, name: str, fn: dist.Normal) -> jax.Array:
    """Return one site's part of a latent vector, drawn with a key of its own."""
    return _bind_normal(
        jax.random.fold_in(key, zlib.crc32(name.encode())), name, fn, fn.batch_shape
    )


def _bind_normal(key: Any, name: str, fn: dist.Normal, shape: tuple[int, ...]) -> jax.Array:
    dtype = jnp.result_type(float, fn.loc, fn.scale)
    parts = (jnp.broadcast_to(part, shape).astype(dtype) for part in (fn.loc, fn.scale))
    return normal_site_p.bind(key, *parts, site=name)


def _bind_masked(key: Any, name: str, fn: DroppedWeight) -> jax.Array:
    leaves, structure = jax.tree.flatten(fn)
    return masked_site_p.bind(key, fn.loc, *leaves, site=name, structure=structure)


def _with_moments(traces: Traces, known: Traces) -> Traces:
    """Return traces at means, with the posterior's moments for latent sites."""
    # Divergences are those of the posterior, whatever value the model has computed with.
    latent = {
        name: {**site, "value": known.guide[name]["value"]}
        for name, site in traces.model.items()
        if name in known.guide and dropout_posterior(known.guide[name]["fn"]) is None
    }
    return Traces(traces.model | latent, known.guide, traces.mutable)


def _dims_of_data(drawing: Drawing, model: dict[str, dict]) -> set[int] | None:
    return None if drawing.data is None else set(drawing.data(observed_plates(model)).dims)


def _evaluated_site(site: dict, parts: dict, dims: set[int] | None) -> dict:
    """Return a site with its evaluated parts: arrays, and the moments of undrawn values."""
    observed = site["type"] == "sample" and site["is_observed"]
    if observed and "log_prob" in parts:
        parts["log_prob"] = _site_terms(parts["log_prob"], dims)
    elif observed:
        parts["fn"] = jax.tree.map(_as_array, parts["fn"], is_leaf=_is_special)
    if isinstance(parts.get("value"), Undrawn):
        site["undrawn"] = parts["value"]
    if site["type"] == "deterministic":
        parts["value"] = _as_array(parts["value"])
    return {**site, **jax.tree.map(_as_moments, parts, is_leaf=_is_special)}


def _as_array(operand: Any) -> Any:
    """Return the array of a part, which is drawn if necessary; rows may have their own noise."""
    operand = draw_operand(operand)
    return operand.array if isinstance(operand, Rows) else operand


def _site_terms(terms: Any, dims: set[int] | None) -> jax.Array:
    """Return a site's log-density; raise SharedDrawNeeded if rows with own noise are no data."""
    terms = draw_operand(terms)
    if not isinstance(terms, Rows):
        return terms
    if dims is not None and terms.axis - terms.array.ndim not in dims:
        raise SharedDrawNeeded(terms.sites)
    return terms.array


def _is_special(operand: Any) -> bool:
    return isinstance(operand, Undrawn | UndrawnRows | Rows)


def _as_moments(operand: Any) -> Any:
    """Return the moments of an undrawn site, the draw of a moved one, and others unchanged."""
    if isinstance(operand, Undrawn) and not operand.moves:
        # The terms of a masked site do not need its value.
        return operand.loc if isinstance(operand.site, MaskedSite) else operand.site.moments()
    return require_array(operand) if _is_special(operand) else operand
