"""Draw from distributions whose samplers are loops: by NumPy, as JAX compiles each for seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.primitives import Messenger

WORDS = 4  # of 32 bits that seed a generator
MOST_EXPECTED = 9e18  # largest rate of counts that NumPy draws
Draw = Callable[..., np.ndarray]  # from a generator, a shape and parameters


def _poisson(generator: np.random.Generator, shape: tuple[int, ...], rate: Any) -> np.ndarray:
    return generator.poisson(np.minimum(rate, MOST_EXPECTED), shape)


def _gamma(
    generator: np.random.Generator, shape: tuple[int, ...], concentration: Any, rate: Any
) -> np.ndarray:
    return generator.standard_gamma(concentration, shape) / rate


def _gamma_poisson(generator: np.random.Generator, *parameters: Any) -> np.ndarray:
    return _poisson(generator, parameters[0], _gamma(generator, *parameters))


class _Sampler(NamedTuple):
    """How NumPy draws from a distribution."""

    parameters: str  # names of the attributes that the draws depend on
    draw: Draw


_SAMPLERS = {
    dist.Poisson: _Sampler("rate", _poisson),
    dist.Gamma: _Sampler("concentration rate", _gamma),
    dist.GammaPoisson: _Sampler("concentration rate", _gamma_poisson),
    dist.BinomialProbs: _Sampler("total_count probs", lambda g, s, n, p: g.binomial(n, p, s)),
    dist.BinomialLogits: _Sampler("total_count probs", lambda g, s, n, p: g.binomial(n, p, s)),
    dist.Beta: _Sampler("concentration1 concentration0", lambda g, s, a, b: g.beta(a, b, s)),
    dist.StudentT: _Sampler(
        "df loc scale", lambda g, s, df, loc, scale: loc + scale * g.standard_t(df, s)
    ),
}


def _sampler_of(fn: Any) -> _Sampler | None:
    """Return how NumPy draws from a distribution; None of others, or of those that differ."""
    for kind, sampler in _SAMPLERS.items():
        if isinstance(fn, kind) and type(fn).sample is kind.sample:
            return sampler
    return None


def _unwrapped(fn: Any) -> Any:
    """Return what is inside wrappers that change shapes and densities alone."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn


def sample(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array | None:
    """Return draws of a shape by NumPy; None of a distribution that JAX draws from."""
    base = _unwrapped(fn)
    if isinstance(base, dist.discrete.ZeroInflatedProbs):
        of_zeros, of_counts = jax.random.split(key)
        counts = sample(base.base_dist, of_counts, shape)
        zeros = jax.random.bernoulli(of_zeros, base.gate, shape)
        return None if counts is None else jnp.where(zeros, 0, counts)
    sampler = _sampler_of(base)
    if sampler is None or base.event_shape or 0 in shape:
        return None
    dtype = jax.eval_shape(lambda: base.sample(jax.random.key(0))).dtype
    parameters = {name: jnp.asarray(getattr(base, name)) for name in sampler.parameters.split()}
    parts = [jnp.broadcast_to(part, shape) for part in parameters.values()]

    def drawn(bits: Any, *parts: Any) -> np.ndarray:
        known = dict(zip(parameters, map(np.asarray, parts), strict=True))
        return _halves(_drawn(sampler.draw, np.asarray(bits), known, dtype))

    double = np.dtype(dtype).itemsize == 8
    result = (
        jax.ShapeDtypeStruct((*shape, 2), np.uint32)
        if double
        else jax.ShapeDtypeStruct(shape, dtype)
    )
    bits = jax.random.bits(key, [WORDS])
    values = jax.pure_callback(drawn, result, bits, *parts, vmap_method="broadcast_all")
    return jax.lax.bitcast_convert_type(values, dtype) if double else values


def _halves(values: np.ndarray) -> np.ndarray:
    """Return numbers of 64 bits as two of 32: JAX calls from threads that may not know others."""
    if values.dtype.itemsize < 8:
        return values
    return np.ascontiguousarray(values)[..., None].view(np.uint32)


def _drawn(
    draw: Draw, bits: np.ndarray, parameters: dict[str, np.ndarray], dtype: Any
) -> np.ndarray:
    """Return draws [..., *shape] by seeds [..., words]; what has no draws is NaN, or −1."""
    batch, parts = bits.shape[:-1], [*parameters.values()]
    shape = parts[0].shape[len(batch) :]
    known = np.logical_and.reduce([_is_allowed(*pair) for pair in parameters.items()])
    seeds = bits.reshape(-1, WORDS).tolist()
    flat = [np.where(known, part, 1).reshape(-1, *shape) for part in parts]
    rows = [
        draw(np.random.default_rng(seed), shape, *row)
        for seed, *row in zip(seeds, *flat, strict=True)
    ]
    missing = np.nan if np.issubdtype(dtype, np.floating) else -1
    return np.where(known, np.stack(rows).reshape(batch + shape), missing).astype(dtype)


def _is_allowed(name: str, part: np.ndarray) -> np.ndarray:
    if name == "loc":
        return np.isfinite(part)
    return np.isfinite(part) & (part >= 0) & ((part <= 1) | (name != "probs"))


class DrawnByNumPy(Messenger):
    """Draws the values of sites by NumPy where JAX would compile a sampler with loops."""

    def process_message(self, msg: Any) -> None:
        """Draw the value of a site that has none yet."""
        if msg["type"] != "sample" or msg["value"] is not None:
            return
        fn, key = msg["fn"], msg["kwargs"].get("rng_key")
        if key is None or not isinstance(fn, dist.Distribution):
            return
        shape = tuple(msg["kwargs"].get("sample_shape", ())) + fn.batch_shape + fn.event_shape
        msg["value"] = sample(fn, key, shape)
