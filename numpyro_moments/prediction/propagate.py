"""Propagate moments of uncertain inputs through any function, without model or guide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro.primitives import Messenger

from moment_calculus import warn_user
from moment_calculus.numerics import one_thread_at_a_time, private_apis
from moment_calculus.predictions import Moments, as_value, draws_from, moments_of_draws
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import RuleBook
from moment_inference import moments_with_attribution
from moment_inference.objectives import choices
from numpyro_moments.evaluation.arguments import checked_key
from numpyro_moments.evaluation.failure_causes import check_function
from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.evaluation.uncertain_inputs import is_moments, moments_in_jax
from numpyro_moments.prediction.predict import needed
from numpyro_moments.rules.programs.units import AT_MEAN
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.random_watch import (
    check_no_draws_left,
    draw_bits,
    noise_rule,
    with_noise,
)


@one_thread_at_a_time
def propagate(
    fn: Callable,
    *inputs: Any,
    rules: str | RuleBook = "exact",
    covariance: str = "diagonal",
    propagation: str = "analytic",
    num_particles: int = 1000,
    rng_key: Any = None,
) -> Any:
    """Propagate means and variances through a function of arrays.

    Args:
        fn: function or module of the inputs, made of supported operations.
        *inputs: :class:`Moments`, pytrees of them, or certain arrays and other arguments.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, ``"vbp"``, ``"logistic"``,
            or your own.
        covariance: ``"diagonal"``, ``"full"`` or ``"backward"``.
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``.
        num_particles: number of draws of the inputs with ``propagation="sampled"``.
        rng_key: random key of ``numpyro.prng_key()`` inside of ``fn``. Sampling needs one; with
            ``"analytic"`` uniform and normal draws inside of ``fn``, as of dropout and of
            stochastic units, are marginalised if there is one, by whatever key ``fn`` draws
            them, and else taken for constants, with a warning.

    Returns:
        What ``fn`` returns, every array replaced by its :class:`Moments`; pytrees keep
        their form.

    Different inputs are independent of each other; within one input the components have
    the covariance given, or are independent.

    ``propagation="sampled"`` draws the inputs ``num_particles`` times from Gaussians with
    these moments, and gives moments over what ``fn`` makes of them: any operation will
    do, and the error is a Monte Carlo one. ``propagation="mean"`` evaluates ``fn`` at the
    means, with variance zero.

    Raises:
        ValueError: if an option is unknown, or there are fewer than two particles to
            sample.
        UnsupportedMoments: if ``fn`` uses an operation without a rule, or draws what cannot be
            marginalised (analytic).

    Source: Shekhovtsov et al. 2018.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> noisy = Moments(jnp.zeros(3), variance=jnp.ones(3))
        >>> round(propagate(jax.nn.relu, noisy).mean[0].item(), 4)
        0.3989
    """
    choices.check_draws_of_inputs(propagation, num_particles)
    how = propagation_of(covariance, rules)
    leaves, structure = jax.tree.flatten(inputs, is_leaf=is_moments)
    indices = [index for index, leaf in enumerate(leaves) if is_moments(leaf)]
    uncertain = [moments_in_jax(leaves[index]) for index in indices]
    check_function(fn, uncertain)

    def program(*arrays: Any) -> Any:
        filled = list(leaves)
        for index, array in zip(indices, arrays, strict=True):
            filled[index] = array
        return fn(*jax.tree.unflatten(structure, filled))

    if propagation == "mean":
        at_mean = program if rng_key is None else partial(_seeded, program, rng_key)
        with AT_MEAN(True):
            return jax.tree.map(_result, at_mean(*(moments.mean for moments in uncertain)))
    if propagation == "sampled":
        draws = _draws(uncertain, num_particles, rng_key)
        keys = jax.random.split(jax.random.fold_in(rng_key, 1), num_particles)
        found = jax.vmap(partial(_seeded, program))(keys, *draws)
        return jax.tree.map(lambda part: moments_of_draws(part, how.has_full_covariance), found)
    names = _names(inputs)
    values = [
        as_value(moments, names[index], how)
        for index, moments in zip(indices, uncertain, strict=True)
    ]
    shapes = [jax.ShapeDtypeStruct(value.shape, value.mean.dtype) for value in values]
    if rng_key is None:
        unseeded = partial(_seeded, program, None)
        jaxpr, outputs = jax.make_jaxpr(unseeded, return_shape=True)(*shapes)
        _warn_of_draws(jaxpr)
        results = Interpreter().run_closed(jaxpr, values)
    else:
        key = checked_key("rng_key", rng_key)
        seeded = partial(_seeded, program)
        jaxpr, outputs = jax.make_jaxpr(seeded, return_shape=True)(key, *shapes)
        jaxpr = with_noise(jaxpr, key, by_any_key=True)
        check_no_draws_left(jaxpr)
        results = Interpreter({"noise": noise_rule(how)}).run_closed(jaxpr, [key, *values])
    return jax.tree.unflatten(jax.tree.structure(outputs), map(_result, results))


def _seeded(program: Callable, key: Any, *arrays: Any) -> Any:
    """Evaluate a program whose keys, ``numpyro.prng_key()``, come from a key, if there is one."""
    with _NoKey() if key is None else numpyro.handlers.seed(rng_seed=key):
        return program(*arrays)


class _NoKey(Messenger):
    """Raises ValueError where a function asks for a key and the user gave none."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "prng_key" and msg["value"] is None:
            raise ValueError(
                "the function asks for numpyro.prng_key(): pass rng_key=, e.g. jax.random.key(0)"
            )


def _warn_of_draws(program: Any) -> None:
    """Warn of numbers that a program draws by a key of its own."""
    if draw_bits(*private_apis.without_dead_code(program.jaxpr).eqns):
        warn_user(
            "the function draws random numbers by a key of its own, which are taken for constants: "
            "pass rng_key=jax.random.key(0) to propagate, which marginalises them",
            UserWarning,
        )


def _draws(uncertain: Sequence[Moments], count: int, key: Any) -> list[jax.Array]:
    keys = jax.random.split(needed(key, False), max(len(uncertain), 1))
    return [
        draws_from(part, jax.random.normal(key, (count, *part.mean.shape), part.mean.dtype))
        for part, key in zip(uncertain, keys, strict=False)
    ]


def _result(result: Any) -> Moments:
    return moments_with_attribution(result if is_random(result) else jnp.asarray(result))


def _names(inputs: Any) -> list[str]:
    """Return a name for each leaf: its input, and the path to it there."""
    paths, _ = jax.tree_util.tree_flatten_with_path(inputs, is_leaf=is_moments)
    return [f"input {path[0].idx}" + jax.tree_util.keystr(path[1:]) for path, _ in paths]
