"""The accuracy of the moments of a program, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.criticism.accuracy import presentation
from moment_calculus.criticism.accuracy.draws import GROUPS, Draw, Totals, drawn_totals
from moment_calculus.criticism.accuracy.layers import Layer
from moment_calculus.criticism.accuracy.measures import Measures, measured
from moment_calculus.criticism.accuracy.wording import no_layers, no_such_row, too_few_draws


@dataclass(frozen=True, eq=False, repr=False)
class AccuracyRow:
    """The accuracy of one layer; arrays are NumPy's, in double precision.

    Args:
        number: of the row, from one.
        site: the site that the layer is, or ``site.parameter`` of its distribution; else empty.
        operation: the operation as the host calls it.
        line: the user's file and line; empty where there is none.
        measures: the error measures: ``mean_error`` ε_μ and ``deviation_ratio`` ε_σ with their
            standard errors, ``noise``, the ``share`` of the elements in ε_σ, ``worst_mean``,
            ``worst_deviation``, ``correlation_error``.
        certificate: bound on the error of any correlation, in standard deviations of both
            features, by the truncation of the series; None where there is none.
        reason: why the moments may be off; empty where no approximation of this layer is known.
        mean: by the moments, of the layer's shape.
        standard_deviation: likewise.
        covariance: of the features of the first elements of the batch, [batch, d, d]; None where
            none is carried.
        sampled_mean: by the draws, of the layer's shape.
        sampled_standard_deviation: likewise.
        sampled_covariance: by the draws, [batch, d, d]; None of layers without features.
        standard_errors: of the sampled means and of the sampled standard deviations.
    """

    number: int
    site: str
    operation: str
    line: str
    measures: Measures
    certificate: float | None
    reason: str
    mean: np.ndarray
    standard_deviation: np.ndarray
    covariance: np.ndarray | None
    sampled_mean: np.ndarray
    sampled_standard_deviation: np.ndarray
    sampled_covariance: np.ndarray | None
    standard_errors: tuple[np.ndarray, np.ndarray]

    @property
    def label(self) -> str:
        """The site, or the operation."""
        return self.site or self.operation

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the layer's value."""
        return self.mean.shape

    @property
    def is_accurate(self) -> bool:
        """Whether the moments are those of the draws but for Monte Carlo error."""
        return not self.measures.is_beyond_noise

    def __repr__(self) -> str:
        """The row in words."""
        return f"<{presentation.place(self)}: {presentation.error(self)}>"


@dataclass(frozen=True, eq=False, repr=False)
class MomentAccuracy:
    """How exact the moments of a model and a guide are, layer by layer, against draws.

    Args:
        rows: of the layers, in the order of the program; those of sites that are no result of an
            operation come last.
        num_samples: number of draws.
        left_out: in words, what is random but has no moments of its own.
    """

    rows: tuple[AccuracyRow, ...]
    num_samples: int
    left_out: tuple[str, ...] = ()

    def __getitem__(self, label: str) -> AccuracyRow:
        """The last row of a label, such as ``"obs.loc"``.

        Args:
            label: a site, ``site.parameter``, or the name of an operation.

        Raises:
            KeyError: if there is none; the message lists the labels.
        """
        found = [row for row in self.rows if label in (row.site, row.operation)]
        if not found:
            raise no_such_row(label, [row.label for row in self.rows])
        return found[-1]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[AccuracyRow]:
        """The rows."""
        return iter(self.rows)

    @property
    def worst(self) -> AccuracyRow:
        """The row that is farthest off: in its means, or in the logarithm of ε_σ."""
        return max(self.rows, key=lambda row: row.measures.departure)

    @property
    def first(self) -> AccuracyRow | None:
        """The first row beyond Monte Carlo error; None if there is none."""
        return next((row for row in self.rows if not row.is_accurate), None)

    @property
    def sentence(self) -> str:
        """The result in words: up to which layer the moments are exact, and why not beyond."""
        return presentation.sentence(self.rows, self.first, self.worst, self.num_samples)

    def table(self) -> Any:
        """The rows as a DataFrame of pandas, by their numbers.

        Raises:
            ImportError: if pandas is not installed.
        """
        return presentation.frame(self.rows)

    def plot(self, axes: Any = None) -> Any:
        """Plot ε_μ and ε_σ along the program, with three Monte Carlo standard errors.

        Args:
            axes: two axes of Matplotlib; by default those of a new figure.

        Returns:
            The two axes.

        Raises:
            ImportError: if Matplotlib is not installed.
        """
        return presentation.plotted(self.rows, axes)

    def __repr__(self) -> str:
        """The result in words."""
        return f"<MomentAccuracy: {self.sentence}>"

    def __str__(self) -> str:
        """A table, and the result in words."""
        return f"{presentation.text(self.rows)}\n\n{self.sentence}"


def check_draws(num_samples: int) -> None:
    """Check the number of draws.

    Args:
        num_samples: what the user gave.

    Raises:
        ValueError: if there are too few for standard errors.
    """
    if isinstance(num_samples, bool) or num_samples < 2 * GROUPS:
        raise too_few_draws(num_samples, 2 * GROUPS)


def accuracy_of(
    found: tuple[Sequence[Layer], Sequence[str]], latent: int, draw: Any, num_samples: int
) -> MomentAccuracy:
    """Compare the layers of a program with draws through it.

    Args:
        found: the layers in the order of the program, sites last, and what else is random.
        latent: number of elements of the latent sites, which are drawn as well.
        draw: from a number of draws and the places of layers to arrays [draws, ...].
        num_samples: number of draws.

    Raises:
        ValueError: if nothing in the program is random.
    """
    layers, left_out = found
    known = [layer.in_numpy() for layer in layers]
    finite = [layer for layer in known if layer.is_finite]
    if not finite:
        raise no_layers()
    places = [layer.place for layer in finite]
    some: Draw = lambda count: draw(count, places)  # noqa: E731
    totals = drawn_totals(finite, latent, some, num_samples)
    rest = [_infinite(layer, "moments") for layer in known if not layer.is_finite]
    rest += [_infinite(part.layer, "draws") for part in totals if not part.is_finite]
    good = enumerate((part for part in totals if part.is_finite), 1)
    rows = tuple(_row(number, part.layer, part) for number, part in good)
    return MomentAccuracy(rows, num_samples, (*left_out, *rest))


def _infinite(layer: Layer, what: str) -> str:
    return f"{layer.label} at {layer.line or '?'}: infinite {what}"


def _row(number: int, layer: Layer, totals: Totals) -> AccuracyRow:
    deviations = [deviation for _, deviation in totals.without()]
    of_deviation = np.std(deviations, axis=0) * math.sqrt(len(deviations) - 1)
    errors = totals.deviation / math.sqrt(totals.count), of_deviation
    return AccuracyRow(
        number,
        layer.site,
        layer.operation,
        layer.line,
        measured(layer, totals, errors),
        layer.certificate,
        layer.reason,
        layer.mean,
        layer.deviation,
        layer.covariance,
        totals.mean,
        totals.deviation,
        totals.covariance,
        errors,
    )
