"""Remove from distributions what NumPyro derives from their parameters, and derive it again.

Some hold the same numbers in a form without moments, such as the stacked parameters of a
Beta. They are not needed while the parameters are random: they are made from arrays
afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions.transforms import SimplexToOrderedTransform


def distributions_in(fn: Any) -> Iterator[Any]:
    """Yield a distribution, or a list of them, and all that are inside it, the innermost first."""
    if isinstance(fn, list | tuple):
        for part in fn:
            yield from distributions_in(part)
    elif isinstance(fn, dist.Distribution):
        for attribute in vars(fn).values():
            yield from distributions_in(attribute)
        yield fn


def stripped(fn: Any) -> Any:
    """Return a copy of a distribution without what it derives from its parameters."""
    new = copied(fn)
    for part in distributions_in(new):
        vars(part).update(dict.fromkeys(_derivations(part)))
    return new


def restored(fn: Any) -> Any:
    """Return a copy of a distribution with all that it derives from its certain parameters."""
    new = copied(fn)
    for part in distributions_in(new):
        for name, derive in _derivations(part).items():
            if vars(part).get(name) is None:
                vars(part)[name] = derive(part)
    return new


def copied(fn: Any) -> Any:
    """Return a copy of a distribution and of all that are inside it, with the same arrays."""
    if isinstance(fn, list | tuple):
        return type(fn)(map(copied, fn))
    if not isinstance(fn, dist.Distribution):
        return fn
    new = copy.copy(fn)
    vars(new).update({name: copied(attribute) for name, attribute in vars(fn).items()})
    return new


def _dirichlet(fn: Any) -> Any:
    pair = jnp.broadcast_arrays(fn.concentration1, fn.concentration0)
    return dist.Dirichlet(jnp.stack(pair, -1), validate_args=False)


def _gamma(fn: Any) -> Any:
    return dist.Gamma(fn.concentration, fn.rate, validate_args=False)


def _ordered(fn: Any) -> Any:
    return SimplexToOrderedTransform(fn.predictor).inv(fn.cutpoints)


DERIVED: dict[type, dict[str, Callable[[Any], Any]]] = {
    dist.Beta: {"_dirichlet": _dirichlet},
    dist.OrderedLogistic: {"probs": _ordered},
    dist.GammaPoisson: {"_gamma": _gamma},
    dist.NegativeBinomialLogits: {"rate": lambda fn: jnp.exp(-fn.logits), "_gamma": _gamma},
    dist.NegativeBinomialProbs: {"rate": lambda fn: 1 / fn.probs - 1, "_gamma": _gamma},
}


def _derivations(fn: Any) -> dict[str, Callable[[Any], Any]]:
    kinds = (kind for kind in type(fn).__mro__ if kind in DERIVED)
    return next((DERIVED[kind] for kind in kinds), {})
