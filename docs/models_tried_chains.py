"""Chains that know standard deviations well, and how linear response compares with them."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import unconstrain_fn

CHAIN = {"num_warmup": 1000, "num_samples": 2000}  # continued until standard deviations are known
ERROR, ROUNDS = 0.03, 25  # largest relative error of one; most times that the chain is run
NEAR = 0.9, 1.1  # ratios of standard deviations


def long_chain(model: Callable, data: list) -> tuple[dict[str, np.ndarray], float]:
    """Run NUTS until all standard deviations are known.

    Args:
        model: of NumPyro.
        data: its arguments.

    Returns:
        Standard deviations by site, on the unconstrained space, and the largest relative
        error of one.
    """
    chains, parts = MCMC(NUTS(model), **CHAIN, progress_bar=False), []
    for key in jax.random.split(jax.random.key(0), ROUNDS):
        chains.run(key, *data)
        free = jax.vmap(lambda v: unconstrain_fn(model, data, {}, v))(chains.get_samples())
        parts.append({site: np.asarray(values) for site, values in free.items()})
        draws = {site: np.concatenate([part[site] for part in parts]) for site in free}
        error = max(float(_error(values).max()) for values in draws.values())
        if error <= ERROR:
            break
        chains.post_warmup_state = chains.last_state
    return {site: values.std(0) for site, values in draws.items()}, error


def _error(values: np.ndarray) -> np.ndarray:
    """Return the relative standard errors of the standard deviations of a chain's draws."""
    squares = (values - values.mean(0)) ** 2
    spread = squares.std(0) / squares.mean(0)
    return np.asarray(spread / 2 / np.sqrt(effective_sample_size(squares[None])))


def compared(found: dict[str, np.ndarray], deviations: dict[str, np.ndarray], error: float) -> str:
    """How many standard deviations are near to a chain's, the median ratio, and the range."""
    ratios = np.concatenate([found[site].ravel() / sd.ravel() for site, sd in deviations.items()])
    near = np.sum((ratios > NEAR[0]) & (ratios < NEAR[1]))
    range_ = f"{ratios.min():.2f}–{ratios.max():.2f}"
    text = f"{near} of {len(ratios)}; {np.median(ratios):.2f} ({range_})"
    return text if error <= ERROR else f"{text}; NUTS' own error {error:.0%}"


def total(rows: list[str]) -> str:
    """How many coordinates of all models are near to a chain's."""
    found = [match for row in rows if (match := re.search(r"\| (\d+) of (\d+); ", row))]
    near, count = (sum(int(match[place]) for match in found) for place in (1, 2))
    return (
        f"Standard deviations by linear response are within 0.9 to 1.1 of NUTS' for {near} of "
        f"{count} coordinates ({near / max(count, 1):.1%}).\n"
    )
