"""Compare a guide with NUTS, and say in words whether it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyro.infer import MCMC, NUTS

from moment_inference.criticism import Comparison, Diagnosis, compare, fitted, run_checks
from pyro_moments.criticism.posteriors import posterior_of
from pyro_moments.evaluation.arguments import checked


@checked
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
        guide: trained guide; or what ``fit`` returned, whose time is then told; or what
            ``nested`` returned, whose marginals are compared, and predictions by its draws.
        *data: what it was trained on, arguments of the model.
        reference: finished chains of the same model and data: a Pyro ``MCMC``, or an
            ``InferenceData`` with the group ``posterior``, as of another program; by
            default NUTS runs now.
        test: other arguments of the model for which predictions are compared, a tuple, as
            new inputs without observations; by default the data.
        objective: the loss that the guide was trained by; by default that of the fit, else
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
    posterior = posterior_of(guide, model, data, named)
    fitted_model = fitted(posterior, guide, objective, test)

    def run() -> MCMC:
        chains = MCMC(
            NUTS(model, **(kernel or {})),
            num_samples=num_samples,
            warmup_steps=num_warmup,
            num_chains=num_chains,
            disable_progbar=not progress_bar,
        )
        with posterior.context.sampling():
            chains.run(*posterior.program.args, **posterior.program.kwargs)
        return chains

    return compare(fitted_model, reference, MCMC, run)


@checked
def diagnose(
    model: Callable,
    guide: Any,
    *data: Any,
    held_out: tuple | None = None,
    objective: Any = None,
    num_samples: int = 4000,
    verbose: bool = True,
    **named: Any,
) -> Diagnosis:
    """Tell in words whether a trained guide can be trusted for its model and data.

    Looks, one after the other, whether the parameters are an optimum; at the loss by
    draws, if ``fit`` made them; at the Pareto shape k̂ of the importance weights of the
    guide and of its linear response, together with the share of the draws that they are
    worth; whether standard deviations of both are those of weighted draws, where weights
    can be trusted, also on the sites' supports; whether the data contradict the prior;
    which data are too influential for leave-one-out; whether predictions are calibrated,
    and data replicated by the model like those observed. All weights are of the same
    draws.

    Of what ``nested`` returned it looks at the evidence and its predicted error, at the
    correction and the grid, and at k̂ of the Gaussian of the field given the best
    hyperparameters, in place of optimum and weights.

    Args:
        model: Pyro model, unmodified.
        guide: trained guide, or what ``fit`` or ``nested`` returned.
        *data: what it was trained on, arguments of the model.
        held_out: other arguments of the model, with observations that were not trained
            on, a tuple; by default calibration is that on the data, where predictions
            look better than they are.
        objective: the loss that the guide was trained by; by default that of the fit, else
            ``DeterministicELBO()``.
        num_samples: draws of the guide, and of linear response, that importance weights
            are of. Their k̂ is an estimate: between draws of 4000 it varies by about 0.1.
        verbose: whether to print the result.
        **named: arguments of the model by name.

    Returns:
        A ``Diagnosis``: its ``findings``, each with a verdict, what it means and what to
        do; ``problems`` are those that are not good. It prints as one table, with words
        below.

    Raises:
        ImportError: if ArviZ is not there.
        ValueError: if draws are not those of the model's latent sites.

    Source: Yao et al. 2018, Yes, but did it work?: evaluating variational inference (k̂);
        Giordano, Broderick and Jordan 2018 (corrected variances); Gelman, Meng and Stern 1996
        (replicated data).

    Example:
        >>> diagnose(model, result, x, y, held_out=(x_test, y_test))  # doctest: +SKIP
    """
    posterior = posterior_of(guide, model, data, named)
    result = run_checks(fitted(posterior, guide, objective, held_out), num_samples)
    if verbose:
        print(result)
    return result
