"""Docstring templates and errors of ``moment_accuracy``."""

from __future__ import annotations

from collections.abc import Iterable

from moment_calculus.refusals.errors import UnsupportedMoments

ARGUMENTS = """
The program of guide and model is run once with moments, as by ``predict``, and then as a plain
program with draws of the latent sites from the guide. Each operation whose result has moments
is a row of the result: linear maps, activations, normalisations, sums and products,
deterministic sites, and the parameters of the observed sites' distributions. Reshapes and other
moves of elements are none; of what is put together to one function (softmax spelled out, a chain
of elementwise functions) parts that have no moments of their own are left out; a loop of JAX is
one row for each of its results.

A row has the error measures of Shekhovtsov et al. 2018, ε_μ = mean |μ − μ*| / mean σ* and ε_σ,
the geometric mean of σ / σ*, with Monte Carlo standard errors by a jackknife of twenty groups of
draws, which takes into account that the elements of a layer are drawn together. ε_μ of exact
moments is not zero but √(2 / πn), its ``noise``. Elements whose sampled standard deviation a few
draws decide, such as units that hardly ever fire, are left out of ε_σ; the root mean square error
of correlations is about 1 / √n where covariances are exact. A row counts as accurate within four
standard errors: among fifteen exact rows one in about a hundred runs has one beyond.

Args:
    model: {host} model.
    guide: trained guide with Gaussian sites, or what ``fit`` returned.
    *data: arguments of both, with or without observations.
"""

OPTIONS = """
num_samples: number of draws, at least 40; means are compared to 1 / √n standard deviations.
covariance: ``"full"`` or ``"diagonal"``.
rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, or one of your own.
"""

RESULT = """
Returns:
    The accuracy: a ``MomentAccuracy``, with ``rows``, ``worst``, ``sentence``, ``table()`` and
    ``plot()``; ``accuracy["obs.loc"]`` is the row of a site's parameter.

Raises:
    UnsupportedMoments: if model or guide leave what is supported, or the program takes another
        path with draws than with moments.
    ValueError: if there are fewer than 40 draws, or nothing in the program is random.

Source: Shekhovtsov, Flach and Busta 2018, Feed-forward uncertainty propagation, section 4.
"""


def too_few_draws(count: object, least: int) -> ValueError:
    """Return the error for too few draws to compute standard errors."""
    return ValueError(
        f"num_samples={count!r} draws have no standard errors: at least {least}, or 1000 to see "
        "deviations of some per cent"
    )


def no_layers() -> ValueError:
    """Return the error for a program without any random result that has moments."""
    return ValueError(
        "no operation of the model has a random result with moments: there is nothing to compare; "
        "are the latent sites used by the model?"
    )


def no_such_row(label: str, labels: Iterable[str]) -> KeyError:
    """Return the error for a label that no row has."""
    return KeyError(f"no row {label!r}; there are {', '.join(dict.fromkeys(labels))}")


def other_path(with_moments: str, with_draws: str, line: str) -> UnsupportedMoments:
    """Return the error for a program that runs other operations with draws than with moments."""
    return UnsupportedMoments(
        f"with moments the program calls {with_moments} where with draws it calls {with_draws}: "
        "layers cannot be compared",
        remedy="let neither the types nor the values of tensors decide what is run",
        operation=with_draws,
        location=line,
    )
