"""Compare a guide with NUTS on the same model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyro.infer import MCMC, NUTS

from moment_calculus.criticism.comparison.comparison import Comparison, compare
from moment_calculus.criticism.comparison.inference_data_chains import InferenceDataChains
from moment_calculus.criticism.comparison.wording import no_chains
from moment_calculus.criticism.containers.arviz_access import is_inference_data
from moment_calculus.criticism.containers.draws import Draws
from pyro_moments.criticism.fitted_model import PyroFittedModel
from pyro_moments.criticism.posteriors import posterior_of


def compare_with_nuts(
    model: Callable,
    guide: Any,
    *data: Any,
    reference: Any = None,
    test: tuple | None = None,
    objective: Any = None,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    num_chains: int = 1,
    kernel: Mapping[str, Any] | None = None,
    progress_bar: bool = False,
    **named: Any,
) -> Comparison:
    """Compare a trained guide and its linear response with NUTS on the same model.

    Pyro runs several chains in separate processes; for a single chain, R-hat compares its
    halves. NUTS takes hours for networks in Pyro: run the chains before, and pass them as
    ``reference``.

    The latent sites are compared on the unconstrained space, where a guide is Gaussian:
    differences of means in standard deviations of the chains, ratios of standard
    deviations of the guide and of its linear response. Predictions are those in closed
    form, and of the chains the mixture over all draws.

    Args:
        model: Pyro model, unmodified: NUTS takes it as it is.
        guide: trained guide, or what ``fit`` returned, whose time is then told.
        *data: what it was trained on, arguments of the model.
        reference: finished chains of the same model and data: a Pyro ``MCMC``, or an
            ``InferenceData`` with the group ``posterior``, as of another program; by
            default NUTS runs now.
        test: other arguments of the model for which predictions are compared, a tuple, as
            new inputs without observations; by default the data.
        objective: the loss that the guide was trained by; by default
            ``DeterministicELBO()``.
        num_warmup: steps of each chain before its draws.
        num_samples: draws of each chain.
        num_chains: chains.
        kernel: options of Pyro's ``NUTS``, such as the target acceptance.
        progress_bar: whether NUTS shows how far it is.
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
    fitted_model = PyroFittedModel(model, guide, data, named, objective, test)
    if reference is None:
        chains = MCMC(
            NUTS(model, **(kernel or {})),
            num_samples=num_samples,
            warmup_steps=num_warmup,
            num_chains=num_chains,
            disable_progbar=not progress_bar,
        )
        sampler: Any = Chains(chains, fitted_model, is_finished=False)
    elif is_inference_data(reference):
        sampler = InferenceDataChains(reference, fitted_model.latent)
    elif isinstance(reference, MCMC):
        sampler = Chains(reference, fitted_model, is_finished=True)
    else:
        raise no_chains(reference, "Pyro")
    return compare(fitted_model, sampler, fitted_model.seconds)


@dataclass(frozen=True)
class Chains:
    """Chains of a model, finished or not."""

    chains: MCMC
    fitted_model: PyroFittedModel
    is_finished: bool

    def run(self) -> Draws:
        """Return the draws of the chains, which run now unless they are finished."""
        model, _, args, named, _ = self.fitted_model.data
        if not self.is_finished:
            with self.fitted_model.context.sampling():
                self.chains.run(*args, **named)
        return posterior_of(self.chains, model, args, named).draws(0)
