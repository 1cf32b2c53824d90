"""What NumPyro's distributions derive from their parameters and keep beside them.

Some hold the same numbers in a form that has no moments, or is no longer univariate: the two
parameters of a Beta stacked, the probabilities of ordered classes. Nothing needs them while the
parameters are random; a program leaves them out, and they are made anew from arrays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions.transforms import SimplexToOrderedTransform


def distributions_in(fn: Any) -> Iterator[Any]:
    """A distribution and all that are inside it, the innermost first.

    Args:
        fn: a distribution, or a list of them.
    """
    if isinstance(fn, list | tuple):
        for part in fn:
            yield from distributions_in(part)
    elif isinstance(fn, dist.Distribution):
        for attribute in vars(fn).values():
            yield from distributions_in(attribute)
        yield fn


def stripped(fn: Any) -> Any:
    """A copy of a distribution without what it derives from its parameters.

    Args:
        fn: a distribution.
    """
    new = copied(fn)
    for part in distributions_in(new):
        vars(part).update(dict.fromkeys(_derivations(part)))
    return new


def restored(fn: Any) -> Any:
    """A copy of a distribution with what it derives from its parameters, which are certain.

    Args:
        fn: a distribution, possibly from :func:`stripped`.
    """
    new = copied(fn)
    for part in distributions_in(new):
        for name, derive in _derivations(part).items():
            if vars(part).get(name) is None:
                vars(part)[name] = derive(part)
    return new


def copied(fn: Any) -> Any:
    """A copy of a distribution and of all that are inside it; the arrays are the same.

    Args:
        fn: a distribution, a list of them, or any other part of one.
    """
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
