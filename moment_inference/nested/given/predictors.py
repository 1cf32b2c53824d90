"""The linear predictor of an observed site: the one Gaussian behind its random parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moment_calculus import UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian, Propagation
from moment_calculus.values.spread import Spread, Ties
from moment_inference.nested.given.refusals import FIT

SEVERAL = ("Multinomial", "MultinomialLogits", "MultinomialProbs")  # predictors of an element
PROPAGATION = Propagation(covariance="diagonal")  # means and functions are all that is read


def predictor_of(
    name: str, kind: str, parameters: Sequence[Any], shape: tuple[int, ...]
) -> Gaussian:
    """Return the Gaussian behind all random parameters of a site; raise if there are several.

    The shape is that of the site's elements, each of which has one predictor.
    """
    found = {id(base): base for base in map(_base, parameters)}
    predictor = next(iter(found.values()), None)
    if len(found) == 1 and isinstance(predictor, Gaussian) and len(predictor.shape) <= len(shape):
        return predictor
    sites = frozenset().union(*(parameter.sites for parameter in parameters))
    if len(found) == 1 or kind in SEVERAL:
        raise UnsupportedMoments(
            f"each element of '{name}' ({kind}) has several linear predictors, and its parameters "
            "are no functions of one linear predictor, as nested inference takes them",
            sites=sites,
            remedy=f"use {FIT}",
        )
    raise UnsupportedMoments(
        f"the likelihood of '{name}' ({kind}) depends on {len(parameters)} random parameters that "
        "are no functions of one linear predictor",
        sites=sites,
        remedy="name in over= the sites behind all parameters but one, if they are a few numbers, "
        f"or use {FIT}",
    )


def _base(parameter: Any) -> Any:
    return parameter.base if isinstance(parameter, Deferred) else parameter


def with_predictor(parameter: Any, predictor: Gaussian) -> Any:
    """Return a random parameter as the same function of another predictor."""
    if isinstance(parameter, Deferred):
        return Deferred(predictor, parameter.function)
    return predictor


def value_at(parameter: Any, predictor: Any) -> Any:
    """Return the value of a random parameter at a value of its predictor."""
    return parameter.function(predictor) if isinstance(parameter, Deferred) else predictor


def independent(mean: Any, variance: Any, like: Gaussian) -> Gaussian:
    """Return a Gaussian with independent components, on which the sites of another have a say."""
    return Gaussian(
        mean,
        Spread(variance),
        axis=None,
        support=like.support,
        ties=Ties.NONE,
        propagation=like.propagation,
    )
