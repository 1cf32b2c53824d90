"""Verbs that take ArviZ's container, or what it is made of: written once for both front ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moment_inference.criticism.arviz_access import leave_one_out
from moment_inference.criticism.calibration.replications import p_values_of
from moment_inference.criticism.model_with_draws import as_inference_data

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class ContainerVerbs:
    """``loo`` and ``predictive_p_values`` of a front end."""

    convert: Callable[..., Any]  # its ``to_inference_data``

    def loo(
        self,
        model: Callable | None = None,
        posterior: Any = None,
        *data: Any,
        site: str | None = None,
        scale: str | None = None,
        importance_weights: bool = True,
        **options: Any,
    ) -> Any:
        """Leave-one-out expected log predictive density, corrected for the approximation.

        Draws of an approximation are no draws of the posterior: their importance weights log
        p − log q are a part of those of leaving a datum out. ``arviz.loo`` alone would leave
        that part out.

        Args:
            model: the model; or an ``InferenceData`` alone.
            posterior: as of ``to_inference_data``; of chains it is ``arviz.loo``.
            *data: its arguments, with observations.
            site: the observed site; by default the only one.
            scale: as of ``arviz.loo``.
            importance_weights: whether to weigh the draws of an approximation by p / q.
                Without, they count as draws of the posterior: the answer where q has so many
                coordinates that the weights of all together are poor, but each marginal is
                right, as linear response of a hierarchy. Measured on random intercepts of 80
                groups of 11 rows (Normal, Poisson, Bernoulli) against NUTS, whose elpd was
                −543 to −1319: +0.1 to −1.3 nats without weights of linear response, +0.3 to
                +1.2 with them; +0.8 to +11.8 with those of the mean-field guide.
            **options: of ``to_inference_data``, and arguments of the model by name.

        Returns:
            ArviZ's ``ELPDData``, pointwise, as ``arviz.compare`` takes it, with
            ``pareto_k_joint`` besides: the Pareto shape k̂ of the weights of the
            approximation as a whole, ``effective_joint``, the
            share of the draws that they are worth, ``is_bad``, which data's weights cannot be
            trusted, and ``importance_weights``, whether they correct for the approximation.
            Weights with k̂ above 0.7 cannot be trusted unless they are all but constant, of
            more than 90 % of the draws; constant ones have k̂ = 0.

        Raises:
            ImportError: if ArviZ is not there.
            ValueError: if the draws have no density, as of dropout, or several sites are
                observed.

        Warns:
            UserWarning: if weights of some data, or of all together, cannot be trusted.

        Source: Magnusson et al. 2019; Vehtari et al. 2024; Yao et al. 2018 (k̂ of
            approximations).

        Example:
            >>> az.compare({"line": loo(line, fit_of_line, x, y), ...})  # doctest: +SKIP
        """
        container = as_inference_data(posterior, model, data, options, self.convert)
        return leave_one_out(container, site, scale, importance_weights)

    def predictive_p_values(
        self,
        model: Callable | None = None,
        posterior: Any = None,
        *data: Any,
        statistics: Mapping[str, Callable] | None = None,
        group: str = "posterior_predictive",
        **options: Any,
    ) -> DataFrame:
        """Return predictive p-values of test statistics, for every observed site.

        Near 0 or 1 the statistic of the data is unlike that of replicated data. Prior
        p-values are uniform under a right model. Posterior ones are not: the posterior has
        seen the data, which moves the p-values of fitted statistics towards ½.

        Args:
            model: the model; or ArviZ's container alone, with groups ``observed_data`` and
                ``group``, whose variables have the axes chain and draw before those of the
                observed data, and ``statistics`` after it.
            posterior: as of ``to_inference_data``, such as what ``fit`` returned.
            *data: arguments of the model, with observations.
            statistics: functions from the array of one data set to a number, by name: np.max,
                or ``lambda y: (y == 0).mean()``; by default smallest, largest and standard
                deviation.
            group: ``"posterior_predictive"`` or ``"prior_predictive"``.
            **options: of ``to_inference_data``, and arguments of the model by name.

        Returns:
            A data frame with one row for each site and statistic and the columns
            ``observed``, ``replicated_mean``, ``replicated_sd``; ``p_value``, P(T(replicated)
            ≥ T(observed)), where ties count half; and ``p_value_mcse``, its Monte Carlo
            standard error by the effective sample size, which is positive even if all
            replications are on one side.

        Raises:
            ValueError: if a group is missing, an observed site is not in it, shapes differ,
                observations are NaN, or a statistic is not one finite number.

        Source: Rubin 1984; Gelman, Meng and Stern 1996; ties as Lancaster 1961.

        Example:
            >>> predictive_p_values(model, result, x, y)  # doctest: +SKIP
        """
        source = model, posterior
        return p_values_of(source, data, statistics, group, options, self.convert)
