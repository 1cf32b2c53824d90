"""Expected log-probabilities of sites and means of powers, by rules or quadrature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.util import sum_rightmost

from moment_calculus import UnsupportedMoments, likelihoods
from moment_calculus.likelihoods import (
    ClassLikelihoods,
    Univariate,
    check_certain,
    check_classes_last,
    check_unconstrained,
    check_univariate,
    families,
    joint_powers,
    missing_logits_error,
)
from moment_calculus.numerics import is_on_host
from moment_calculus.operations import catalogue as ops
from moment_calculus.predictions import Marginal, VectorMarginal
from moment_calculus.values import Deferred, Gaussian
from moment_guides.numpyro import EmpiricalBayesNormal, Horseshoe, LogUniform
from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.likelihoods.structure import (
    component,
    constrained_values,
    has_moments,
    placeholder,
    random_leaves,
    replaced,
    restored,
)
from numpyro_moments.rules.table import is_random

_BINARY = dist.BernoulliLogits, dist.BernoulliProbs


def draw_observations(fn: Any, key: jax.Array, count: int, shape: tuple[int, ...]) -> jax.Array:
    """Draw parameters, and an observation for each: [count, *shape]."""
    distribution_at, arguments = _parametrise(fn)
    keys = iter(jax.random.split(key, 4))  # of at most three Gaussians, and of the observation

    def noise(shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(next(keys), shape)

    points = likelihoods.draw_arguments(arguments, count, noise)

    def observation(key: jax.Array, *points: jax.Array) -> jax.Array:
        return distribution_at(*points).expand(shape).sample(key)

    return jax.vmap(observation)(jax.random.split(next(keys), count), *points)


def _vectorise(function: Callable[..., Any], shape: tuple[int, ...]) -> Callable[..., jax.Array]:
    """Return a function of arrays that is mapped over the axes of nodes before a shape."""

    # The distribution gets one node at a time, and so the shapes that it was made for.
    def mapped(*arguments: Any) -> jax.Array:
        if not arguments:
            return jnp.broadcast_to(function(), shape)
        wide = np.broadcast_shapes(shape, *(jnp.shape(argument) for argument in arguments))
        nodes = wide[: len(wide) - len(shape)]
        flat = [jnp.reshape(jnp.broadcast_to(a, wide), (-1, *shape)) for a in arguments]
        found = jax.vmap(function)(*flat)
        return jnp.reshape(jnp.broadcast_to(found, flat[0].shape), (*nodes, *shape))

    return mapped


def _parametrise(fn: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function from random parameters to the distribution, and the parameters."""
    arguments, distribution_at = replaced(fn)
    check_univariate(fn, arguments)
    check_unconstrained(
        fn, constrained_values(fn), _may_be_unbounded, link_names="jnp.exp(h) or jax.nn.sigmoid(h)"
    )
    return distribution_at, arguments


def _may_be_unbounded(constraint: Any) -> bool:
    """Return whether a constraint allows any real number, or cannot be checked."""
    if constraints.is_dependent(constraint) or constraint.event_dim:
        return True
    if any(hasattr(bound, "shape") for bound in jax.tree.leaves(constraint, is_leaf=is_random)):
        return True
    return all(bool(constraint(point)) for point in (-1.5, 1.5))


def _is_floating(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating)


def _double(value: Any) -> Any:
    if is_random(value) or isinstance(value, int | float):
        return value
    if is_on_host():
        return np.asarray(value, np.float64)
    value = jnp.asarray(value)
    if not _is_floating(value):
        return value
    # Nodes are float64 if JAX allows it. In float32 the error is that of NumPyro's
    # density: 1e-6, relative or absolute, measured over ten families.
    return value.astype(jax.dtypes.canonicalize_dtype(np.float64))


UNIVARIATE = Univariate(
    parametrise=_parametrise,
    vectorise=_vectorise,
    certain=lambda fn: None if has_moments(fn) else restored(fn),
    support=lambda fn: placeholder(fn).support,
    is_random=is_random,
    is_floating=_is_floating,
    double=_double,
    binary=_BINARY,
    trials=(*_BINARY, dist.BinomialLogits, dist.BinomialProbs),
    zero_inflated=(dist.discrete.ZeroInflatedProbs,),
    expanded=(dist.ExpandedDistribution,),
    on_host=lambda fn: jax.tree.map(np.asarray, fn),
)


PRIORS = (EmpiricalBayesNormal, Horseshoe, LogUniform)
NEEDS_RULE = (dist.Delta, dist.Unit, dist.MultinomialLogits, dist.MultinomialProbs, *PRIORS)
TABLES = families.LikelihoodTables("NumPyro", UNIVARIATE, NEEDS_RULE)
EXPECTED_LOG_PROB, TEMPERED, PREDICTIVES = TABLES.expected, TABLES.tempered, TABLES.prediction_rules
expected_log_prob, predictive_moments = TABLES.expected_log_prob, TABLES.predictive_moments
predictive, is_predicted = TABLES.predictive, TABLES.is_predicted
moments_and_law, marginal = TABLES.moments_and_law, TABLES.marginal


def evaluate(name: str, fn: Any, value: Any) -> jax.Array:
    """Return E_q[log p(value)] of one site, of the distribution's batch shape.

    The result has the additional axes of an observation, as in NumPyro's ``log_prob``. It
    is zero where a mask excludes, even for NaN. Outside the support it is −∞, after
    NumPyro's own warning.
    """
    if not is_random(value):
        value = jnp.asarray(value)
    if isinstance(fn, dist.Independent):
        return sum_rightmost(evaluate(name, fn.base_dist, value), fn.reinterpreted_batch_ndims)
    if isinstance(fn, dist.MaskedDistribution):
        return _masked(name, fn, value)
    if isinstance(fn, dist.ExpandedDistribution):
        return jnp.broadcast_to(evaluate(name, fn.base_dist, value), shape_with(fn, value))
    if is_random(value):
        return _expected(name, fn, value)
    return supported(fn, value, _expected(name, fn, value))


def _expected(name: str, fn: Any, value: Any) -> jax.Array:
    shape = shape_with(fn, value)
    if not is_random(value) and not has_moments(fn):
        return restored(fn).log_prob(value)
    if 0 in shape:
        return jnp.zeros(shape)
    rule = EXPECTED_LOG_PROB.function_for(fn)
    if rule is not None:
        return jnp.broadcast_to(rule(on_arrays(fn), value), shape)
    if (log_prob := _log_density_of_image(name, fn, value)) is not None:
        return log_prob
    if fn.event_dim or not _is_univariate(value):
        sites = frozenset().union(*(leaf.sites for leaf in random_leaves(fn)))
        raise families.no_expected_log_prob(
            name, fn, EXPECTED_LOG_PROB, framework="NumPyro", sites=sites
        )
    return UNIVARIATE.expected(fn, value)


def _log_density_of_image(name: str, fn: Any, value: Any) -> jax.Array | None:
    """Return E_q[log p] of an ordered vector or a correlation matrix; None of other values."""
    if not isinstance(fn, dist.TransformedDistribution):
        return None
    return likelihoods.log_prob_of_image(
        value,
        lambda part: evaluate(name, fn.base_dist, part),
        is_lkj=isinstance(fn, dist.LKJ),
        is_ordered=[*map(type, fn.transforms)] == [dist.transforms.OrderedTransform],
    )


def shape_with(fn: Any, value: Any) -> tuple[int, ...]:
    """Return the batch shape, or the wider one of an observation; raise if they do not fit."""
    batch = tuple(value.shape)[: max(len(value.shape) - fn.event_dim, 0)]
    try:
        return np.broadcast_shapes(fn.batch_shape, batch)
    except ValueError:
        raise UnsupportedMoments(
            f"the observation or value of shape {tuple(value.shape)} does not fit a "
            f"{type(fn).__name__} of batch shape {fn.batch_shape} and event shape "
            f"{fn.event_shape}",
            sites=frozenset().union(*(leaf.sites for leaf in random_leaves([fn, value]))),
            remedy="align them, or declare event axes with .to_event(...)",
        ) from None


def on_arrays(fn: Any) -> Any:
    """Return a distribution with JAX's arrays in place of NumPy's, so that both can be combined."""
    leaves, tree = jax.tree.flatten(fn, is_leaf=is_random)
    moved = [jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    return jax.tree.unflatten(tree, moved)


def _masked(name: str, fn: Any, value: Any) -> jax.Array:
    """Return E_q[log p], zero with zero gradients where a mask excludes, even for NaN."""
    mask = fn._mask
    if mask is False:
        return jnp.zeros(shape_with(fn, value))
    if mask is True:
        return evaluate(name, fn.base_dist, value)
    if not is_random(value):
        wide = jnp.reshape(mask, jnp.shape(mask) + (1,) * fn.event_dim)
        value = jnp.where(wide, value, feasible(fn, value))
    return jnp.where(mask, evaluate(name, fn.base_dist, value), 0.0)


def feasible(fn: Any, value: jax.Array) -> jax.Array:
    """Return values like the observations that have a log-probability, if NumPyro knows some."""
    support = _certain_support(fn)
    try:
        return value if support is None else support.feasible_like(value)
    except NotImplementedError:
        return value


def _certain_support(fn: Any) -> Any:
    """Return the support of a distribution; None if it is random."""
    bounds = [getattr(fn, "_support", None), getattr(fn, "transforms", None)]
    return None if has_moments(bounds) else placeholder(fn).support


def supported(fn: Any, value: jax.Array, log_prob: jax.Array) -> jax.Array:
    """Return log-probabilities after NumPyro's validation: −∞ outside the support."""
    own = fn._validate_args
    validates = dist.Distribution._validate_args if own is None else own
    if not validates or isinstance(fn, dist.Unit) or _certain_support(fn) is None:
        return log_prob
    return jnp.where(placeholder(fn)._validate_sample(value), log_prob, -jnp.inf)


def _is_univariate(value: Any) -> bool:
    """Return whether an observation or a latent value has moments by component."""
    return not is_random(value) or isinstance(value, Gaussian | Deferred)


def observed(
    name: str, fn: Any, value: Any, scale: Any = 1.0, plates: tuple[str, ...] = ()
) -> joint_powers.ObservedSite:
    """Return an observed site as a product of densities of its elements."""
    # The scale multiplies the log density. Elements of the plates, given by name, are no
    # data.
    value = value if is_random(value) else jnp.asarray(value)
    shape = shape_with(fn, value)
    if 0 in shape or not (is_random(value) or has_moments(fn)):
        known = jnp.broadcast_to(evaluate(name, fn, value), shape)
        return joint_powers.ObservedSite(
            name, "", shape, 0, (), scale, lambda: known, lambda power: known
        )
    base, value, events, weights = WRAPPERS.elements(fn, value, scale, included)
    if events:
        shape = shape + tuple(fn.event_shape[:events])
    random = [*random_leaves(base), *([value] if is_random(value) else [])]
    return joint_powers.ObservedSite(
        name,
        type(base).__name__,
        shape,
        events,
        tuple(joint_powers.Parameter.of(leaf, len(base.batch_shape)) for leaf in random),
        weights,
        partial(evaluate, name, base, value),
        partial(_log_power, name, base, value),
        _normal(base, value),
        plates,
    )


def included(fn: Any, value: Any) -> Any:
    """Return the value, with feasible numbers where a mask excludes."""
    if is_random(value) or isinstance(fn._mask, bool):
        return value
    mask = jnp.reshape(fn._mask, jnp.shape(fn._mask) + (1,) * fn.event_dim)
    return jnp.where(mask, value, feasible(fn, value))


def _normal(base: Any, value: Any) -> tuple[Any, Any, Any] | None:
    if EXPECTED_LOG_PROB.registered_class(base) is not dist.Normal:
        return None
    base = on_arrays(base)
    return value, base.loc, base.scale


def _log_power(name: str, fn: Any, value: Any, power: Any) -> jax.Array:
    sites = frozenset().union(*(leaf.sites for leaf in random_leaves(fn)))
    rule = TABLES.rule_of_power(name, fn, sites)
    result = rule(on_arrays(fn), value, power)
    return result if is_random(value) else supported(fn, value, result)


tempered = partial(joint_powers.power_mean, observed)
tempered_jointly = partial(joint_powers.power_mean_of_data, observed)


_ODDS = ("logits", "probs")


def kinds_of(family: families.Family) -> list[type]:
    """Return NumPyro's classes of a family."""
    ends = [name.capitalize() for name in _ODDS] if family.odds else [""]
    kinds = [getattr(dist, f"{family.name}{end}", None) for end in ends]
    return [kind for kind in kinds if kind]


def _read(family: families.Family, fn: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the parameters in the order of the family, and the given odds by name."""
    names = [name for name in _ODDS if name in fn.arg_constraints] if family.odds else []
    parameters = [getattr(fn, name) for name in family.parameters.split()]
    return parameters, {name: getattr(fn, name) for name in names}


for _family in families.FAMILIES:
    TABLES.serve(_family, kinds_of(_family), _read)
TABLES.serve_factor(dist.Delta, "log_density")
TABLES.serve_factor(dist.Unit, "log_factor")  # of numpyro.factor


def _components(name: str, fn: Any) -> Marginal:
    """Return the marginals of a multivariate Normal, whose components are Normal."""

    def covariances() -> tuple[jax.Array, jax.Array]:
        noise = likelihoods.noise_covariance(_root(fn))
        return _multivariate_normal_predictive(fn)[-1].covariance_matrix, noise

    return VectorMarginal(name, type(fn).__name__, covariances)


def _root(fn: Any) -> jax.Array:
    """Return the Cholesky factor of a multivariate Normal's covariance."""
    if not isinstance(fn, dist.LowRankMultivariateNormal):
        return fn.scale_tril
    check_certain(cov_factor=fn.cov_factor, cov_diag=fn.cov_diag)
    return jnp.linalg.cholesky(fn.covariance_matrix)


@predictive_moments(dist.MultivariateNormal, dist.LowRankMultivariateNormal, marginal=_components)
def _multivariate_normal_predictive(fn: Any) -> tuple:
    root = _root(fn)
    mean, epistemic, aleatoric, covariance = likelihoods.multivariate_normal_predictive(
        fn.loc, root
    )
    return mean, epistemic, aleatoric, dist.MultivariateNormal(mean, covariance)


@expected_log_prob(dist.LowRankMultivariateNormal)
def _low_rank_normal(fn: Any, value: Any) -> jax.Array:
    return likelihoods.multivariate_normal(value, fn.loc, _root(fn))


@TEMPERED.register(dist.LowRankMultivariateNormal)
def _tempered_low_rank_normal(fn: Any, value: Any, power: Any) -> jax.Array:
    return likelihoods.tempered_multivariate_normal(power, value, fn.loc, _root(fn))


@expected_log_prob(dist.discrete.ZeroInflatedProbs)
def _zero_inflated(fn: Any, value: Any) -> jax.Array:
    odds, probability = (vars(fn).get(name) for name in ("gate_logits", "gate"))
    of_base = partial(evaluate, "", fn.base_dist, value)
    return UNIVARIATE.zero_inflated_counts(fn, value, odds, probability, of_base)


@expected_log_prob(EmpiricalBayesNormal)
def _empirical_bayes(fn: EmpiricalBayesNormal, value: Any) -> jax.Array:
    check_certain(alpha=fn.alpha, beta=fn.beta)
    moments = value.gaussian()
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(Horseshoe, LogUniform)
def _sparse(fn: Horseshoe | LogUniform, value: Any) -> jax.Array:
    if not isinstance(value, Gaussian):
        return UNIVARIATE.expected(fn, value)
    check_certain(scale=getattr(fn, "scale", None))
    return fn.expected_log_prob(value.mean, value.variance)


@expected_log_prob(dist.ImproperUniform)
def _improper_uniform(fn: dist.ImproperUniform, value: Any) -> jax.Array:
    return jnp.zeros(fn.batch_shape)


@TEMPERED.register(dist.ImproperUniform)
def _tempered_improper_uniform(fn: dist.ImproperUniform, value: Any, power: Any) -> jax.Array:
    return _improper_uniform(fn, value)


def random_logits(fn: Any) -> Gaussian:
    """Return the Gaussian logits [..., classes] of a Categorical or a Multinomial."""
    logits, probs = (vars(fn).get(name) for name in ("logits", "probs"))
    if isinstance(logits, ops.LogSoftmax) or (logits is None and isinstance(probs, ops.Softmax)):
        logits = (probs if logits is None else logits).source
    elif is_random(logits):
        logits = logits.gaussian()
    else:
        raise missing_logits_error(probs, "jax.nn.softmax")
    check_classes_last(logits, type(fn).__name__.removesuffix("Logits").removesuffix("Probs"))
    return logits


def _noise(logits: Gaussian, shape: tuple[int, ...]) -> jax.Array:
    """Return standard normal draws with a key of the enclosing ``numpyro.handlers.seed``."""
    key = numpyro.prng_key()
    if key is None:
        raise UnsupportedMoments(
            "categorical='sample' draws logits, and there is no random key",
            sites=logits.sites,
            remedy="evaluate inside numpyro.handlers.seed(rng_seed=...), or choose "
            "categorical='points'",
        )
    return jax.random.normal(key, shape, logits.mean.dtype)


class _Categorical(dist.CategoricalProbs):
    """A Categorical that takes classes in arrays of NumPy, which come as floating numbers."""

    def log_prob(self, value: Any) -> jax.Array:
        """Return the logarithm of the probability of each class."""
        return super().log_prob(_class_index(value))


def _class_index(value: Any) -> jax.Array:
    return jnp.asarray(value, jnp.result_type(int))


_CLASSES = ClassLikelihoods(
    tables=TABLES,
    logits=random_logits,
    has_random_parameters=has_moments,
    class_index=_class_index,
    standard_normal=_noise,
    make_categorical=_Categorical,
)
_CLASSES.register_categorical(dist.CategoricalLogits, dist.CategoricalProbs)
_CLASSES.register_multinomial(dist.MultinomialLogits, dist.MultinomialProbs)
_CLASSES.register_ordered(dist.OrderedLogistic)


@expected_log_prob(dist.MixtureSameFamily)
def _mixture(fn: Any, value: Any) -> jax.Array:
    if not has_moments(fn):
        return UNIVARIATE.expected(fn, value)
    mixing, components = fn.mixing_distribution, fn.component_distribution
    indices = range(components.batch_shape[-1])
    if fn.event_dim:
        batch = len(value.shape) - fn.event_dim
        shape = (*value.shape[:batch], 1, *value.shape[batch:])
        together = evaluate("", components, ops.reshape(value, shape))
        return _CLASSES.log_mixture(mixing, [together[..., index] for index in indices])
    logs = [evaluate("", component(components, index), value) for index in indices]
    return _CLASSES.log_mixture(mixing, logs)
