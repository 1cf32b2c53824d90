"""A guide beside NUTS on the same model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from numpyro.infer.elbo import ELBO

from moment_calculus.criticism.comparison.comparison import Comparison, compared
from moment_calculus.criticism.comparison.contained import ContainedChains
from moment_calculus.criticism.comparison.wording import ARGUMENTS, OPTIONS, RESULT, no_chains
from moment_calculus.criticism.containers.arviz_line import is_inference_data
from moment_calculus.criticism.containers.draws import Draws
from moment_calculus.hosts.docstrings import documented
from numpyro_moments.criticism.posteriors import ChainPosterior
from numpyro_moments.criticism.subject import NumPyroSubject
from numpyro_moments.draws.plates import Whole
from numpyro_moments.evaluation.keys import checked_key
from numpyro_moments.objectives.base import Program

FIELDS = ("diverging", "accept_prob", "num_steps", "energy")


@documented("NumPyro", arguments=ARGUMENTS, options=OPTIONS, result=RESULT)
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

    {arguments}
        params: trained parameters of guide and model, where ``guide`` is no ``Fit``.
        {options}
        rng_key: random key; by default always the same.
        **named: arguments of the model by name.

    {result}

    Example:
        >>> comparison = compare_with_nuts(model, result, x, y)  # doctest: +SKIP
        >>> print(comparison)  # doctest: +SKIP
    """
    key = jax.random.key(0) if rng_key is None else checked_key("rng_key", rng_key)
    of_subject, of_chains = jax.random.split(key)
    subject = NumPyroSubject(model, guide, data, named, params, objective, test, of_subject)
    if reference is None:
        options = {"chain_method": "vectorized", "progress_bar": progress_bar}
        numbers = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains}
        sampled = Whole(trained(model, subject.data.parameters))
        chains = MCMC(NUTS(sampled, **(kernel or {})), **numbers, **options)
        sampler: Any = Chains(chains, subject.data, of_chains, is_finished=False)
    elif is_inference_data(reference):
        sampler = ContainedChains(reference, subject.latent)
    elif isinstance(reference, MCMC):
        sampler = Chains(reference, subject.data, of_chains, is_finished=True)
    else:
        raise no_chains(reference, "NumPyro")
    with subject.running():
        return compared(subject, sampler, subject.seconds)


def trained(model: Callable, params: Mapping[str, Any]) -> Callable:
    """A model with its parameters as they were trained, not as they began.

    Args:
        model: the model.
        params: of guide and model.
    """
    return handlers.substitute(model, data=dict(params))


@dataclass(frozen=True)
class Chains:
    """Chains of a model.

    Args:
        chains: of NumPyro.
        program: model and data.
        key: random key.
        is_finished: whether they were run before.
    """

    chains: MCMC
    program: Program
    key: Any
    is_finished: bool

    def run(self) -> Draws:
        """Their draws; they run now unless they are finished."""
        if not self.is_finished:
            _, _, args, named, _ = self.program
            self.chains.run(self.key, *args, extra_fields=FIELDS, **named)
        return ChainPosterior(self.chains, self.program).draws(0, self.key)
