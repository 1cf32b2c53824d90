"""The mean of an observation, as a value of the calculus.

A distribution of NumPyro computes its mean from parameters that are random here: the computation
is traced as a program of them, which the interpreter evaluates with moments.
"""

from __future__ import annotations

from typing import Any

import jax

from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.likelihoods.structure import random_leaves, restored
from numpyro_moments.rules.table import is_random


def mean_value(fn: Any, attribute: str) -> Any:
    """Return an attribute of a distribution, ``mean`` or ``probs``, with its moments."""
    leaves, tree = jax.tree.flatten(fn, is_leaf=is_random)
    indices = [index for index, leaf in enumerate(leaves) if is_random(leaf)]

    def program(*arrays: Any) -> Any:
        given = dict(zip(indices, arrays, strict=True))
        filled = [given.get(index, leaf) for index, leaf in enumerate(leaves)]
        return getattr(restored(jax.tree.unflatten(tree, filled)), attribute)

    values = random_leaves(fn)
    shapes = [jax.ShapeDtypeStruct(value.shape, value.at_mean.dtype) for value in values]
    return Interpreter().run_closed(jax.make_jaxpr(program)(*shapes), values)[0]
