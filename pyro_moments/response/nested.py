"""Nested inference of Pyro's models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from pyro import poutine

from moment_calculus.numerics import one_thread_at_a_time
from moment_calculus.predictions import checked_count
from moment_inference import nested as parts
from pyro_moments.draws.model import PyroModel
from pyro_moments.evaluation.arguments import checked
from pyro_moments.fitting.parameters import double_precision, to_float64
from pyro_moments.fitting.problem import random_state_restored
from pyro_moments.fitting.storing import HOST
from pyro_moments.objectives.base import Program
from pyro_moments.response.conditional import NestedModel


class Nested(parts.NestedPosterior):
    """The posterior of a latent Gaussian model, by nested inference."""

    _host: NestedModel

    @property
    def device(self) -> torch.device:
        """Where the values of the model's sites are."""
        return self._host.device

    def sample(self, n: int) -> dict[str, torch.Tensor]:
        """Draw from the posterior, with torch's global generator.

        Args:
            n: how many draws.

        Returns:
            Tensors [n, ...] by latent site, on the sites' supports: what
            ``pyro.infer.Predictive(model, posterior_samples=...)`` takes. Each
            element has its marginal's distribution; hyperparameters lie between the points
            of the grid, and the field has the correlations of a point near them.

        Raises:
            ValueError: if ``n`` is not a positive number.
        """
        count = checked_count(n)
        seed = int(torch.randint(2**62, (), device="cpu"))
        draws = self.plain_draws(np.random.default_rng(seed), count)
        how: Any = {"dtype": torch.get_default_dtype(), "device": self.device}
        return {name: torch.as_tensor(value, **how) for name, value in draws.items()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the posterior into one file.

        The file holds arrays as safetensors, and a header of JSON: versions, the model's
        sites with their distributions and shapes, and a digest of the data. Nothing in it is
        executed when it is loaded.

        Args:
            path: the file; an existing one is replaced atomically.

        Example:
            >>> posterior.save("walk.safetensors")  # doctest: +SKIP
        """
        _file(self, self._host).write(path, parts.tree_of(self._inference, _digest(self._host)), {})

    @classmethod
    def load(cls, path: str | PathLike[str], model: Callable, *data: Any, **named: Any) -> Nested:
        """Load a posterior from a file of :meth:`save`, without exploring anew.

        Args:
            path: the file.
            model: the model that it is of.
            *data: its arguments, with observations, as ``nested`` had them.
            **named: arguments of the model by name.

        Returns:
            The posterior.

        Raises:
            FileNotFoundError: if there is no file.
            StoredFileError: if it is truncated, damaged, of another kind, of a newer
                version, or from another framework, model or data.

        Example:
            >>> posterior = Nested.load("walk.safetensors", model, y)  # doctest: +SKIP
        """
        with double_precision():
            host = NestedModel(model, *to_float64((data, named)))
            tree = _file(cls, host).read(path, require_checkpoint=False)
            return cls(host, parts.inference_of(tree, host, _digest(host), path))

    @torch.no_grad()
    def predict_by_draws(
        self, model: Callable, args: tuple, kwargs: dict[str, Any], count: int
    ) -> dict[str, Any]:
        """Return mixtures over draws of what a model observes, and moments of its other sites."""
        seed = int(torch.randint(2**62, (), device="cpu"))
        values = self.plain_draws(np.random.default_rng(seed), count)
        with double_precision(), random_state_restored(), poutine.block():
            args, kwargs = to_float64((args, kwargs))
            first = {name: value[0] for name, value in values.items()}
            return PyroModel(Program(model, self, args, kwargs), first, self.device).predictions(
                values
            )


def _file(result: Any, host: NestedModel) -> Any:
    """Return the writer and reader of files of a posterior, or of its class."""
    with host.context():
        return HOST.stored(result, HOST.described(host.model, host.args, host.kwargs))


def _digest(host: NestedModel) -> str:
    return HOST.digest((host.args, host.kwargs))


@one_thread_at_a_time
@double_precision()  # in which also the arguments become tensors
@checked
def nested(
    model: Callable, *data: Any, over: Sequence[str] | None = None, guide: Any = None, **named: Any
) -> Nested:
    """Infer a latent Gaussian model: hyperparameters on a grid, and a Gaussian given each point.

    Given its hyperparameters (scales, correlations, shapes) the latent sites of such a model, its
    field, are Gaussian, and every observation depends on them by one linear predictor:
    hierarchies, random walks, splines, Gaussian processes, maps, with any likelihood. At each point
    of the grid the ELBO of a Gaussian with all covariances is maximised; the second
    cumulant of what it leaves out corrects it, in closed form. The evidence has a
    predicted error.

    Args:
        model: Pyro model, unmodified.
        *data: its arguments, with observations.
        over: names of the hyperparameters, of up to five numbers together; by default the
            sites that are no real numbers, and the real numbers on which the precision of
            other sites, or the slope of a predictor, depends.
        guide: a ``Fit`` of the same model, or a guide whose ``median()`` needs no arguments, at
            whose medians of the hyperparameters the search for their mode begins; by default
            it begins at a quartile of the prior.
        **named: arguments of the model by name.

    Returns:
        The posterior: a ``Nested``.

    Raises:
        UnsupportedMoments: if the model is not of this kind: given the hyperparameters a
            site is not Gaussian, or an observation depends on two predictors; or if their
            posterior has no mode.
        ValueError: if ``over`` names other sites, or ``guide`` has none of these sites.
        TypeError: if ``guide`` has no medians.

    Source: Rue, Martino and Chopin 2009 (the grid); the ELBO in place of Laplace's
        approximation, and its correction, are this library's: ``docs/maths.md``.

    Example:
        >>> posterior = nested(model, x, y)  # doctest: +SKIP
        >>> posterior.marginal("sigma").quantile(0.95)  # doctest: +SKIP
        >>> posterior.log_evidence, posterior.log_evidence_error  # doctest: +SKIP
    """
    args, kwargs = to_float64((data, named))
    host, medians = NestedModel(model, args, kwargs), parts.medians_of(guide)
    return Nested(host, parts.Inference.of(host, over, medians))
