"""Compare a guide with NUTS on the same model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from numpyro.infer.elbo import ELBO

from moment_calculus.criticism.comparison.comparison import Comparison, compare
from moment_calculus.criticism.comparison.inference_data_chains import InferenceDataChains
from moment_calculus.criticism.comparison.wording import no_chains
from moment_calculus.criticism.containers.arviz_access import is_inference_data
from moment_calculus.criticism.containers.draws import Draws
from numpyro_moments.criticism.fitted_model import NumPyroFittedModel
from numpyro_moments.criticism.posteriors import ChainPosterior
from numpyro_moments.draws.sites import Whole
from numpyro_moments.evaluation.arguments import checked_key
from numpyro_moments.objectives.base import Program

FIELDS = ("diverging", "accept_prob", "num_steps", "energy")


def compare_with_nuts(
    model: Callable,
    guide: Any,
    *data: Any,
    params: dict[str, Any] | None = None,
    reference: Any = None,
    test: tuple | None = None,
    objective: ELBO | None = None,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    num_chains: int = 4,
    kernel: Mapping[str, Any] | None = None,
    progress_bar: bool = False,
    rng_key: Any = None,
    **named: Any,
) -> Comparison:
    """Compare a trained guide and its linear response with NUTS on the same model.

    The latent sites are compared on the unconstrained space, where a guide is Gaussian:
    differences of means in standard deviations of the chains, ratios of standard
    deviations of the guide and of its linear response. Predictions are those in closed
    form, and of the chains the mixture over all draws.

    Args:
        model: NumPyro model, unmodified: NUTS takes it as it is.
        guide: trained guide, or what ``fit`` returned, whose time is then told.
        *data: what it was trained on, arguments of the model.
        params: trained parameters of guide and model, unless ``guide`` is a ``Fit``.
        reference: finished chains of the same model and data: a NumPyro ``MCMC``, or an
            ``InferenceData`` with the group ``posterior``, as of another program; by
            default NUTS runs now.
        test: other arguments of the model for which predictions are compared, a tuple, as
            new inputs without observations; by default the data.
        objective: the loss that the guide was trained by; by default
            ``DeterministicELBO()``.
        num_warmup: steps of each chain before its draws.
        num_samples: draws of each chain.
        num_chains: chains.
        kernel: options of NumPyro's ``NUTS``, such as the target acceptance.
        progress_bar: whether NUTS shows how far it is.
        rng_key: random key; by default always the same.
        **named: arguments of the model by name.

    Returns:
        The numbers: a ``Comparison``, which prints as tables; ``table()`` is a data frame
        of all coordinates, ``plot()`` draws them, ``inference_data`` has the containers
        of ArviZ by source. Where linear response or leave-one-out is not possible,
        ``notes`` say why.

    Raises:
        ImportError: if ArviZ is not there.
        ValueError: if the model draws random numbers that belong to no site, as masks of
            dropout: NUTS would take those of one draw for ever.
        TypeError: if ``reference`` is something else.

    Example:
        >>> comparison = compare_with_nuts(model, result, x, y)  # doctest: +SKIP
        >>> print(comparison)  # doctest: +SKIP
    """
    key = jax.random.key(0) if rng_key is None else checked_key("rng_key", rng_key)
    of_subject, of_chains = jax.random.split(key)
    fitted_model = NumPyroFittedModel(
        model, guide, data, named, params, objective, test, of_subject
    )
    if reference is None:
        options = {"chain_method": "vectorized", "progress_bar": progress_bar}
        numbers = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains}
        sampled = Whole(trained(model, fitted_model.data.parameters))
        chains = MCMC(NUTS(sampled, **(kernel or {})), **numbers, **options)
        sampler: Any = Chains(chains, fitted_model.data, of_chains, is_finished=False)
    elif is_inference_data(reference):
        sampler = InferenceDataChains(reference, fitted_model.latent)
    elif isinstance(reference, MCMC):
        sampler = Chains(reference, fitted_model.data, of_chains, is_finished=True)
    else:
        raise no_chains(reference, "NumPyro")
    with fitted_model.running():
        return compare(fitted_model, sampler, fitted_model.seconds)


def trained(model: Callable, params: Mapping[str, Any]) -> Callable:
    """Return a model whose parameters have their trained values."""
    return handlers.substitute(model, data=dict(params))


@dataclass(frozen=True)
class Chains:
    """Chains of a model, finished or not."""

    chains: MCMC
    program: Program
    key: Any
    is_finished: bool

    def run(self) -> Draws:
        """Return the draws of the chains, which run now unless they are finished."""
        if not self.is_finished:
            _, _, args, named, _ = self.program
            self.chains.run(self.key, *args, extra_fields=FIELDS, **named)
        return ChainPosterior(self.chains, self.program).draws(0, self.key)
