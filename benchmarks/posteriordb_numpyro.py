"""The approximations of posteriordb's posteriors in NumPyro: draws of every site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpyro
from numpyro.infer import SVI, Trace_ELBO, autoguide
from posteriors_numpyro import HOST, nuts

from numpyro_moments import DVIGuide, fit, linear_response

# What is no longer waited for would go on in the background, beside what is timed next
jax.config.update("jax_cpu_enable_async_dispatch", False)

__all__ = ["HOST", "automatic", "fitted", "mean_field", "nuts", "responded"]


def forget() -> None:
    """Drop compiled programs: those of all posteriors are more than a process may map."""
    jax.clear_caches()


def fitted(make: Callable[[], Callable]) -> tuple[Any, ...]:
    """Model, guide and fit, by Newton's method."""
    with jax.enable_x64(True):
        model, guide = make(), DVIGuide()
        return model, guide, fit(model, guide, method="newton", float64=True)


def mean_field(found: tuple[Any, ...], draws: int) -> dict[str, Any]:
    """Of what ``fitted`` gives."""
    _, guide, result = found
    with jax.enable_x64(True):
        return guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(draws,))


def responded(found: tuple[Any, ...], draws: int) -> dict[str, Any]:
    """Of what ``fitted`` gives."""
    model, guide, result = found
    with jax.enable_x64(True):
        response = linear_response(model, guide, params=result.params, float64=True)
        return response.sample(draws, jax.random.key(1))


def automatic(
    name: str, make: Callable[[], Callable], steps: int, rate: Callable, draws: int
) -> dict[str, Any]:
    """A guide of the host, by its own ELBO of one draw.

    Args:
        name: of the guide.
        make: the model to approximate.
        steps: of Adam.
        rate: of learning, by the step.
        draws: how many.
    """
    with jax.enable_x64(True):
        model, key = make(), jax.random.key(0)
        guide = getattr(autoguide, name)(model)
        svi = SVI(model, guide, numpyro.optim.Adam(rate), Trace_ELBO())
        params = svi.run(key, steps, progress_bar=False).params
        return guide.sample_posterior(jax.random.key(1), params, sample_shape=(draws,))
