"""Expected log-probabilities of sites and means of powers, by rules or quadrature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost
from torch import distributions
from torch.distributions import constraints

from moment_calculus import likelihoods
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
from moment_calculus.operations import catalogue as ops
from moment_calculus.predictions import Marginal, VectorMarginal
from moment_calculus.values import Deferred, Gaussian
from moment_guides.pyro import EmpiricalBayesNormal, Horseshoe, LogUniform
from pyro_moments.evaluation.precision import mixed_precision_error
from pyro_moments.evaluation.tensor import MomentTensor, unwrap, wrap
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.likelihoods.structure import (
    component,
    constrained_tensors,
    has_moments,
    random_tensors,
    with_plain_tensors,
)


def draw_observations(fn: Any, count: int, shape: torch.Size) -> torch.Tensor:
    """Draw parameters, and an observation for each: [count, *shape]."""
    distribution_at, arguments = _parametrise(fn)
    device = random_tensors(fn)[0].device

    def noise(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.double, device=device)

    def aligned(point: torch.Tensor) -> torch.Tensor:
        axes = (1,) * (len(shape) - point.dim() + 1)
        return point.reshape(count, *axes, *point.shape[1:])

    points = map(aligned, likelihoods.draw_arguments(arguments, count, noise))
    return ExpandedDistribution(distribution_at(*points), torch.Size((count, *shape))).sample()


def _parametrise(fn: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function from random parameters to the distribution, and the parameters."""
    tensors = random_tensors(fn)
    parts = [_parts_of(tensor) for tensor in tensors]
    arguments = [part for several in parts for part in several]
    check_univariate(fn, arguments)
    parameters = (
        (name, part, kind)
        for name, tensor, kind in constrained_tensors(fn)
        for part in _parts_of(tensor)
    )
    check_unconstrained(
        fn, parameters, _may_be_unbounded, link_names="torch.exp(h) or torch.sigmoid(h)"
    )

    def distribution_at(*points: torch.Tensor) -> Any:
        shape = torch.broadcast_shapes(fn.batch_shape, *(point.shape for point in points))
        rest = iter(points)
        groups = [[next(rest) for _ in several] for several in parts]
        joined = [group[0] if len(group) == 1 else _stacked(group) for group in groups]
        table = {id(tensor): point for tensor, point in zip(tensors, joined, strict=True)}
        return with_plain_tensors(fn, table, shape)

    return distribution_at, arguments


def _parts_of(tensor: MomentTensor) -> tuple[Any, ...]:
    """Return what a random tensor was stacked from, as the concentrations inside a Beta are."""
    value = unwrap(tensor)
    return ops.unstacked(value) or (value,)


def _stacked(points: list[Any]) -> torch.Tensor:
    return torch.stack(torch.broadcast_tensors(*points), -1)


def _may_be_unbounded(constraint: Any) -> bool:
    """Return whether a constraint allows any real number, or cannot be checked."""
    bounds = vars(constraint).values()
    if constraints.is_dependent(constraint) or any(isinstance(b, torch.Tensor) for b in bounds):
        return True
    event = (2,) * constraint.event_dim
    points = (torch.full(event, point, device="cpu") for point in (-1.5, 1.5))
    return all(bool(constraint.check(point)) for point in points)


def _double(value: Any) -> Any:
    plain = unwrap(value)
    floating = isinstance(plain, torch.Tensor) and plain.is_floating_point()
    return plain.double() if floating else plain


UNIVARIATE = Univariate(
    parametrise=_parametrise,
    vectorise=lambda function, shape: function,  # torch's distributions broadcast
    certain=lambda fn: None if has_moments(fn) else fn,
    support=lambda fn: fn.support,
    is_random=lambda part: isinstance(part, MomentTensor),
    is_floating=torch.is_floating_point,
    double=_double,
    binary=(distributions.Bernoulli,),
    trials=(distributions.Bernoulli, distributions.Binomial),
    zero_inflated=(dist.ZeroInflatedDistribution,),
    expanded=(ExpandedDistribution,),
)


PRIORS = (EmpiricalBayesNormal, Horseshoe, LogUniform)
NEEDS_RULE = (dist.Delta, dist.Unit, distributions.Multinomial, *PRIORS)
TABLES = families.LikelihoodTables("Pyro", UNIVARIATE, NEEDS_RULE, unwrap)
EXPECTED_LOG_PROB, TEMPERED, PREDICTIVES = TABLES.expected, TABLES.tempered, TABLES.prediction_rules
expected_log_prob, predictive_moments = TABLES.expected_log_prob, TABLES.predictive_moments
predictive, is_predicted = TABLES.predictive, TABLES.is_predicted
moments_and_law, marginal = TABLES.moments_and_law, TABLES.marginal


def evaluate(name: str, fn: Any, value: Any) -> torch.Tensor:
    """Return E_q[log p(value)] of one site, of the distribution's batch shape.

    Any univariate distribution without a rule is integrated numerically.
    """
    if (log_prob := certain_log_prob(fn, value)) is not None:
        return log_prob
    if isinstance(fn, WRAPPERS):
        return _evaluate_wrapped(name, fn, value)
    rule = EXPECTED_LOG_PROB.function_for(fn)
    if rule is not None:
        return explain_precision(rule, fn, value)
    if (log_prob := _log_density_of_image(name, fn, value)) is not None:
        return log_prob
    if fn.event_dim or not _is_univariate(value):
        raise families.no_expected_log_prob(name, fn, EXPECTED_LOG_PROB, framework="Pyro")
    return UNIVARIATE.expected(fn, value)


def _evaluate_wrapped(name: str, fn: Any, value: Any) -> torch.Tensor:
    inner = evaluate(name, fn.base_dist, value)
    if isinstance(fn, torch.distributions.Independent):
        return sum_rightmost(inner, fn.reinterpreted_batch_ndims)
    if isinstance(fn, MaskedDistribution):
        return scale_and_mask(inner, mask=fn._mask)
    return inner.expand(fn.batch_shape)


def _log_density_of_image(name: str, fn: Any, value: Any) -> torch.Tensor | None:
    """Return E_q[log p] of an ordered vector or a correlation matrix; None of other values."""
    if not isinstance(fn, distributions.TransformedDistribution):
        return None
    return likelihoods.log_prob_of_image(
        unwrap(value),
        lambda part: evaluate(name, fn.base_dist, wrap(part)),
        is_lkj=isinstance(fn, dist.LKJ),
        is_ordered=[*map(type, fn.transforms)] == [dist.transforms.OrderedTransform],
    )


def explain_precision(rule: Callable, fn: Any, value: Any) -> torch.Tensor:
    """Apply a rule; if operands differ in precision, raise an error that names them."""
    try:
        return rule(fn, value)
    except RuntimeError as error:
        refusal = mixed_precision_error(error, {"the observation": value, **vars(fn)})
        raise refusal or error from None


def certain_log_prob(fn: Any, value: Any) -> torch.Tensor | None:
    """Return the log density if nothing is random, zeros for an empty batch, and None else."""
    if not isinstance(value, MomentTensor) and not has_moments(fn):
        return fn.log_prob(value)
    return torch.zeros(fn.batch_shape, device=value.device) if 0 in fn.batch_shape else None


def _is_univariate(value: Any) -> bool:
    """Return whether an observation or a latent value has moments by component."""
    return isinstance(unwrap(value), torch.Tensor | Gaussian | Deferred)


def observed(
    name: str, fn: Any, value: Any, scale: Any = 1.0, plates: tuple[str, ...] = ()
) -> joint_powers.ObservedSite:
    """Return an observed site as a product of densities of its elements."""
    # The scale multiplies the log density. Elements of the plates, given by name, are no
    # data.
    if (log_prob := certain_log_prob(fn, value)) is not None:
        shape = tuple(log_prob.shape)
        return joint_powers.ObservedSite(
            name, "", shape, 0, (), scale, lambda: log_prob, lambda power: log_prob
        )
    base, _, events, weights = WRAPPERS.elements(fn, value, scale, lambda fn, value: value)
    shape = fn.batch_shape + fn.event_shape[:events]
    random = [*random_tensors(base), *([value] if isinstance(value, MomentTensor) else [])]
    own = value.shape[: len(value.shape) - base.event_dim]
    return joint_powers.ObservedSite(
        name,
        type(base).__name__,
        tuple(torch.broadcast_shapes(shape, own)),
        events,
        tuple(
            joint_powers.Parameter.of(unwrap(tensor), len(base.batch_shape)) for tensor in random
        ),
        weights,
        partial(evaluate, name, base, value),
        partial(_log_power, name, base, value),
        _normal(base, value),
        plates,
    )


def _normal(base: Any, value: Any) -> tuple[Any, Any, Any] | None:
    if EXPECTED_LOG_PROB.registered_class(base) is torch.distributions.Normal:
        return unwrap(value), unwrap(base.loc), unwrap(base.scale)
    return None


def _log_power(name: str, fn: Any, value: Any, power: Any) -> torch.Tensor:
    sites = frozenset().union(*(tensor.value.sites for tensor in random_tensors(fn)))
    rule = TABLES.rule_of_power(name, fn, sites)
    return explain_precision(lambda fn, value: rule(fn, value, power), fn, value)


tempered = partial(joint_powers.power_mean, observed)
tempered_jointly = partial(joint_powers.power_mean_of_data, observed)


# Attributes in which torch keeps parameters before it broadcasts them.
_ATTRIBUTES = {"scale_tril": "_unbroadcasted_scale_tril"}


def kinds_of(family: families.Family) -> list[type]:
    """Return Pyro's class of a family in a list, which is empty if there is none."""
    kinds = [getattr(module, family.name, None) for module in (distributions, dist)]
    return [kind for kind in kinds if kind][:1]


def _read(family: families.Family, fn: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the parameters in the order of the family, and the given odds by name."""
    names = family.parameters.split()
    parameters = [unwrap(getattr(fn, _ATTRIBUTES.get(name, name))) for name in names]
    if not family.odds:
        return parameters, {}
    odds = {name: vars(fn)[name] for name in ("logits", "probs") if name in vars(fn)}
    if len(odds) == 2:  # one of them was computed from the other, which is ``_param``
        odds.pop("probs" if getattr(fn, "_param", odds["logits"]) is odds["logits"] else "logits")
    return parameters, {name: unwrap(part) for name, part in odds.items()}


for _family in families.FAMILIES:
    TABLES.serve(_family, kinds_of(_family), _read)
TABLES.serve_factor(dist.Delta, "log_density")
TABLES.serve_factor(dist.Unit, "log_factor")  # of pyro.factor


def _components(name: str, fn: Any) -> Marginal:
    """Return the marginals of a multivariate Normal, whose components are Normal."""

    def covariances() -> tuple[torch.Tensor, torch.Tensor]:
        noise = likelihoods.noise_covariance(unwrap(fn._unbroadcasted_scale_tril))
        return _multivariate_normal_predictive(fn)[-1].covariance_matrix, noise

    return VectorMarginal(name, type(fn).__name__, covariances)


@predictive_moments(distributions.MultivariateNormal, marginal=_components)
def _multivariate_normal_predictive(fn: Any) -> tuple:
    root = unwrap(fn._unbroadcasted_scale_tril)
    parts = likelihoods.multivariate_normal_predictive(unwrap(fn.loc), root)
    mean, epistemic, aleatoric, covariance = parts
    return mean, epistemic, aleatoric, dist.MultivariateNormal(mean, covariance)


@expected_log_prob(dist.ZeroInflatedDistribution)
def _zero_inflated(fn: Any, value: torch.Tensor) -> torch.Tensor:
    odds, probability = (unwrap(vars(fn).get(name)) for name in ("gate_logits", "gate"))
    of_base = partial(evaluate, "", fn.base_dist, value)
    return UNIVARIATE.zero_inflated_counts(fn, value, odds, probability, of_base)


@expected_log_prob(EmpiricalBayesNormal)
def _empirical_bayes(fn: EmpiricalBayesNormal, value: Any) -> torch.Tensor:
    moments = unwrap(value).gaussian()
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(Horseshoe, LogUniform)
def _sparse(fn: Horseshoe | LogUniform, value: Any) -> torch.Tensor:
    moments = unwrap(value)
    if not isinstance(moments, Gaussian):
        return UNIVARIATE.expected(fn, value)
    check_certain(scale=unwrap(getattr(fn, "scale", None)))
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(dist.ImproperUniform)
def _improper_uniform(fn: dist.ImproperUniform, value: Any) -> torch.Tensor:
    return torch.zeros(fn.batch_shape, device=value.device)


@TEMPERED.register(dist.ImproperUniform)
def _tempered_improper_uniform(fn: dist.ImproperUniform, value: Any, power: Any) -> torch.Tensor:
    return _improper_uniform(fn, value)


def random_logits(fn: Any) -> Gaussian:
    """Return the Gaussian logits [..., classes] of a distribution with random parameters."""
    fn = getattr(fn, "_categorical", fn)  # of a Multinomial or a OneHotCategorical
    parameters = (unwrap(vars(fn).get(name)) for name in ("logits", "probs"))
    of_classes = [one for one in parameters if isinstance(one, ops.LogSoftmax | ops.Softmax)]
    if not of_classes:  # other probabilities than a softmax of logits
        raise missing_logits_error(unwrap(vars(fn).get("probs")), "torch.softmax")
    check_classes_last(of_classes[0].source, "Categorical")
    return of_classes[0].source


def _noise(logits: Gaussian, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, dtype=logits.mean.dtype, device=logits.mean.device)


_CLASSES = ClassLikelihoods(
    tables=TABLES,
    logits=random_logits,
    has_random_parameters=has_moments,
    class_index=torch.Tensor.long,  # as in torch, classes may have any dtype
    standard_normal=_noise,
    make_categorical=dist.Categorical,
)
_CLASSES.register_categorical(distributions.Categorical)
_CLASSES.register_multinomial(distributions.Multinomial)
_CLASSES.register_ordered(dist.OrderedLogistic)


@expected_log_prob(distributions.MixtureSameFamily)
def _mixture(fn: Any, value: Any) -> torch.Tensor:
    if not has_moments(fn):
        return UNIVARIATE.expected(fn, value)
    mixing, components = fn.mixture_distribution, fn.component_distribution
    if fn.event_dim:
        logs = [*evaluate("", components, value.unsqueeze(-1 - fn.event_dim)).unbind(-1)]
        return _CLASSES.log_mixture(mixing, logs)
    indices = range(components.batch_shape[-1])
    logs = [evaluate("", component(components, index), value) for index in indices]
    return _CLASSES.log_mixture(mixing, logs)


@TABLES.expected.register(distributions.OneHotCategorical)
def _one_hot(fn: Any, value: Any) -> torch.Tensor:
    return _CLASSES.log_prob(fn, value.argmax(-1))


@TABLES.tempered.register(distributions.OneHotCategorical)
def _tempered_one_hot(fn: Any, value: Any, power: Any) -> torch.Tensor:
    return _CLASSES.tempered_log_prob(fn, value.argmax(-1), power)
