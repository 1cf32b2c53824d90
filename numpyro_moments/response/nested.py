"""Nested inference of NumPyro's models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.numerics import one_thread_at_a_time
from moment_calculus.predictions import checked_count
from moment_inference import nested as parts
from numpyro_moments.draws.model import NumPyroModel
from numpyro_moments.evaluation.arguments import Precision, checked, checked_key, in_jax
from numpyro_moments.evaluation.small_operations import small_operations_by_numpy
from numpyro_moments.fitting.storing import HOST
from numpyro_moments.objectives.base import Program
from numpyro_moments.response.conditional import NestedModel


class Nested(parts.NestedPosterior):
    """The posterior of a latent Gaussian model, by nested inference."""

    _host: NestedModel

    def sample(self, n: int, key: jax.Array) -> dict[str, jax.Array]:
        """Draw from the posterior.

        Args:
            n: how many draws.
            key: random key.

        Returns:
            Arrays [n, ...] by latent site on their supports, as NumPyro's ``Predictive``
            takes for its ``posterior_samples``. Each element has its marginal's
            distribution; hyperparameters lie between the points of the grid, and the field
            has the correlations of a point near them.

        Raises:
            ValueError: if ``n`` is not a positive number.
            TypeError: if ``key`` is no key.
        """
        generator = _generator(checked_key("key", key))
        draws = self.plain_draws(generator, checked_count(n))
        return {name: jnp.asarray(value) for name, value in draws.items()}

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
        host = _host(model, data, named)
        tree = _file(cls, host).read(path, require_checkpoint=False)
        with host.precision():
            return cls(host, parts.inference_of(tree, host, _digest(host), path))

    def predict_by_draws(
        self, model: Callable, args: tuple, kwargs: dict[str, Any], count: int, key: jax.Array
    ) -> dict[str, Any]:
        """Return mixtures over draws of what a model observes, and moments of its other sites."""
        precision, guide = Precision(True), cast(Any, self)
        values = self.plain_draws(_generator(key), count)
        with precision():
            args, kwargs = in_jax((args, kwargs), True)
            first = {name: value[0] for name, value in values.items()}
            program = Program(model, guide, args, kwargs, {})
            return NumPyroModel(program, first, precision, key).predictions(values)


def _generator(key: jax.Array) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.bits(key, [4])))


def _host(model: Callable, data: tuple, named: dict[str, Any]) -> NestedModel:
    precision = Precision(True)
    with precision():
        args, kwargs = in_jax((data, named), True)
    return NestedModel(model, args, kwargs, precision)


def _file(result: Any, host: NestedModel) -> Any:
    """Return the writer and reader of files of a posterior, or of its class."""
    with host.precision():
        return HOST.stored(result, HOST.described(host.model, host.args, host.kwargs))


def _digest(host: NestedModel) -> str:
    return HOST.digest((host.args, host.kwargs))


@one_thread_at_a_time
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
        model: NumPyro model, unmodified.
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
    host, medians = _host(model, data, named), parts.medians_of(guide)
    with host.precision(), small_operations_by_numpy():
        return Nested(host, parts.Inference.of(host, over, medians))
