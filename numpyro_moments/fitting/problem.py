"""What is trained, and on which data: shared by all methods."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.hosts.mini_batches import PlateScaling
from moment_calculus.optimisation.batches import Arguments
from numpyro_moments.fitting.weighting import Weighting
from numpyro_moments.prediction.predict import log_predictive
from numpyro_moments.svi import SVI


@dataclass(frozen=True)
class Problem:
    """Model, guide and objective, with what is held out.

    Args:
        svi: of all three.
        plates: how mini-batches are scaled; None for all data at once.
        held_out: arguments of the model that are not trained on; None if there are none.
    """

    svi: SVI
    plates: PlateScaling | None = None
    held_out: Arguments | None = None

    def update(self, state: Any, data: Arguments, batch: int | None, kl_weight: Any) -> Any:
        """One step: the next state, and the loss before.

        Args:
            state: of the SVI.
            data: arguments of model and guide.
            batch: rows of the mini-batch; None for all data.
            kl_weight: of the latent sites; None for one.
        """
        args, named = data
        found = self.weighted(batch, kl_weight).update(state, *args, **named)
        if self.plates is not None:
            self.plates.check_observed()
        return found

    def weighted(self, batch: int | None, kl_weight: Any) -> SVI:
        """Model and guide with the weights of one step.

        Args:
            batch: rows of the mini-batch; None for all data.
            kl_weight: of the latent sites; None for one.
        """
        plates = None if batch is None else self.plates
        if plates is None and kl_weight is None:
            return self.svi
        svi = copy.copy(self.svi)
        svi.model = Weighting(svi.model, plates, batch, kl_weight)
        if kl_weight is not None:
            svi.guide = Weighting(svi.guide, None, batch, kl_weight)
        return svi

    def terms(
        self, params: dict[str, Any], mutable: Any, data: Arguments, batch: int | None
    ) -> dict[str, float]:
        """What each site contributes to the ELBO; empty if the objective does not tell.

        Args:
            params: unconstrained.
            mutable: values of mutable sites; None if there are none.
            data: arguments of model and guide.
            batch: rows of the mini-batch; None for all data.
        """
        if not hasattr(self.svi.loss, "sum_sites"):
            return {}
        losses = self._terms(params, mutable, data, batch)
        return {name: -float(loss) for name, loss in losses.items()}

    @cached_property
    def _terms(self) -> Any:
        loss = copy.copy(self.svi.loss)
        loss.sum_sites = False

        def terms(
            params: dict[str, Any], mutable: Any, arrays: list, rest: Static, batch: int | None
        ) -> Any:
            svi, (args, named) = self.weighted(batch, None), rest.joined(arrays)
            values = {**svi.constrain_fn(params), **(mutable or {})}
            return loss.loss(jax.random.key(0), values, svi.model, svi.guide, *args, **named)

        compiled = jax.jit(terms, static_argnums=(3, 4))
        return lambda params, mutable, data, batch: compiled(params, mutable, *apart(data), batch)

    def score(self, params: dict[str, Any], mutable: Any = None) -> Any:
        """Held-out log-likelihood.

        Args:
            params: unconstrained.
            mutable: values of mutable sites; None if there are none.
        """
        return self._score(params, mutable)

    @cached_property
    def _score(self) -> Any:
        assert self.held_out is not None
        arrays, rest = apart(self.held_out)

        def score(params: dict[str, Any], mutable: Any, arrays: list) -> Any:
            args, named = rest.joined(arrays)
            svi, propagation = self.svi, getattr(self.svi.loss, "propagation", None)
            values = {**svi.constrain_fn(params), **(mutable or {})}
            return log_predictive(propagation, svi.model, svi.guide, values, *args, **named)

        compiled = jax.jit(score)
        return lambda params, mutable: compiled(params, mutable, arrays)


@dataclass(frozen=True)
class Static:
    """What of some arguments is no array: it is compiled in.

    Args:
        structure: of dictionaries and tuples.
        leaves: what is no array, by place.
    """

    structure: Any
    leaves: tuple[tuple[int, Any], ...]

    def joined(self, arrays: list) -> Any:
        """The arguments with arrays.

        Args:
            arrays: in order.
        """
        rest, leaves = dict(self.leaves), iter(arrays)
        places = range(self.structure.num_leaves)
        parts = [rest[place] if place in rest else next(leaves) for place in places]
        return jax.tree.unflatten(self.structure, parts)


def apart(data: Any) -> tuple[list, Static]:
    """Arrays among arguments, and the rest.

    Args:
        data: arguments, in dictionaries and tuples.
    """
    leaves, structure = jax.tree.flatten(data)
    arrays = [leaf for leaf in leaves if is_array(leaf)]
    rest = tuple((place, leaf) for place, leaf in enumerate(leaves) if not is_array(leaf))
    return arrays, Static(structure, rest)


def in_jax(data: Any) -> Any:
    """Arrays of NumPy and tensors of torch as JAX's.

    Of NumPy's, JAX mixes up traces of single and double precision.

    Args:
        data: arguments, in dictionaries and tuples.
    """

    def converted(part: Any) -> Any:
        foreign = hasattr(part, "__array__") and not isinstance(part, jax.Array)
        return jnp.asarray(np.asarray(part)) if foreign else part

    return jax.tree.map(converted, data)


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
