"""The result of ``moment_accuracy``: moments of each layer compared with those of draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.criticism.accuracy import presentation
from moment_calculus.criticism.accuracy.draws import GROUPS, Draw, LayerSums, accumulate
from moment_calculus.criticism.accuracy.layers import Layer
from moment_calculus.criticism.accuracy.measures import ErrorMeasures, error_measures
from moment_calculus.criticism.accuracy.wording import no_layers, no_such_row, too_few_draws


@dataclass(frozen=True, eq=False, repr=False)
class AccuracyRow:
    """The accuracy of one layer. Arrays are of NumPy, in double precision."""

    number: int  # starts at one
    site: str  # the site, or "site.parameter" of its distribution; otherwise empty
    operation: str  # name in the framework
    line: str  # the user's file and line, or empty
    measures: ErrorMeasures
    # Bound on the error of any correlation by the truncation of its series, in standard
    # deviations of both features; None if there is none.
    certificate: float | None
    reason: str  # why the moments may be wrong; empty if no approximation is known
    mean: np.ndarray  # propagated, of the layer's shape
    standard_deviation: np.ndarray
    # Of the features of the first batch elements, [batch, d, d]; None if not propagated.
    covariance: np.ndarray | None
    sampled_mean: np.ndarray  # of the draws
    sampled_standard_deviation: np.ndarray
    sampled_covariance: np.ndarray | None  # [batch, d, d]; None of layers without features
    standard_errors: tuple[np.ndarray, np.ndarray]  # of sampled means and of deviations

    @property
    def label(self) -> str:
        """Return the name of the site, otherwise of the operation."""
        return self.site or self.operation

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the layer's value."""
        return self.mean.shape

    @property
    def is_accurate(self) -> bool:
        """Return whether the moments differ from those of the draws by Monte Carlo error only."""
        return not self.measures.is_beyond_noise

    def __repr__(self) -> str:
        """Return the row in words."""
        return f"<{presentation.row_label(self)}: {presentation.error(self)}>"


@dataclass(frozen=True, eq=False, repr=False)
class MomentAccuracy:
    """The accuracy of the moments of a model and a guide, layer by layer, against draws.

    Args:
        rows: one for each layer, in the order of the program; sites that are not the
            result of an operation come last.
        num_samples: number of draws.
        left_out: what is random but has no moments of its own, in words.
    """

    rows: tuple[AccuracyRow, ...]
    num_samples: int
    left_out: tuple[str, ...] = ()

    def __getitem__(self, label: str) -> AccuracyRow:
        """Return the last row with a label such as ``"obs.loc"``; raise KeyError without one."""
        matches = [row for row in self.rows if label in (row.site, row.operation)]
        if not matches:
            raise no_such_row(label, [row.label for row in self.rows])
        return matches[-1]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[AccuracyRow]:
        """Iterate over the rows."""
        return iter(self.rows)

    @property
    def worst(self) -> AccuracyRow:
        """The row with the largest error, in its means or in the logarithm of ε_σ."""
        return max(self.rows, key=lambda row: row.measures.departure)

    @property
    def first(self) -> AccuracyRow | None:
        """The first row whose error exceeds Monte Carlo error; None if there is none."""
        return next((row for row in self.rows if not row.is_accurate), None)

    @property
    def sentence(self) -> str:
        """The result in words: up to which layer the moments are exact, and why not beyond it."""
        return presentation.sentence(self.rows, self.first, self.worst, self.num_samples)

    def table(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``, indexed by their numbers.

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
        return presentation.plot(self.rows, axes)

    def __repr__(self) -> str:
        """Return the result in words."""
        return f"<MomentAccuracy: {self.sentence}>"

    def __str__(self) -> str:
        """Return a table, and the result in words."""
        return f"{presentation.text(self.rows)}\n\n{self.sentence}"


def check_draws(num_samples: int) -> None:
    """Raise ValueError if there are too few draws for standard errors."""
    if isinstance(num_samples, bool) or num_samples < 2 * GROUPS:
        raise too_few_draws(num_samples, 2 * GROUPS)


def accuracy_of(
    layers: Sequence[Layer],  # in the order of the program, sites last
    left_out: Sequence[str],  # a text for each other random value
    latent: int,  # number of elements of the latent sites, which each draw needs as well
    draw: Any,  # from a number of draws and the places of layers to arrays [draws, ...]
    num_samples: int,
) -> MomentAccuracy:
    """Compare the layers of a program with draws through it; raise ValueError if there are none."""
    numpy_layers = [layer.in_numpy() for layer in layers]
    finite = [layer for layer in numpy_layers if layer.is_finite]
    if not finite:
        raise no_layers()
    indices = [layer.index for layer in finite]
    draw_finite: Draw = lambda count: draw(count, indices)  # noqa: E731
    sums = accumulate(finite, latent, draw_finite, num_samples)
    infinite = [_infinite(layer, "moments") for layer in numpy_layers if not layer.is_finite]
    infinite += [_infinite(part.layer, "draws") for part in sums if not part.is_finite]
    good = enumerate((part for part in sums if part.is_finite), 1)
    rows = tuple(_row(number, part.layer, part) for number, part in good)
    return MomentAccuracy(rows, num_samples, (*left_out, *infinite))


def _infinite(layer: Layer, what: str) -> str:
    return f"{layer.label} at {layer.line or '?'}: infinite {what}"


def _row(number: int, layer: Layer, sums: LayerSums) -> AccuracyRow:
    deviations = [deviation for _, deviation in sums.leave_one_group_out()]
    of_deviation = np.std(deviations, axis=0) * math.sqrt(len(deviations) - 1)
    errors = sums.deviation / math.sqrt(sums.count), of_deviation
    return AccuracyRow(
        number,
        layer.site,
        layer.operation,
        layer.line,
        error_measures(layer, sums, errors),
        layer.certificate,
        layer.reason,
        layer.mean,
        layer.deviation,
        layer.covariance,
        sums.mean,
        sums.deviation,
        sums.covariance,
        errors,
    )
