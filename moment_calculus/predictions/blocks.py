"""Predict many rows in blocks, one after the other, where rows do not depend on each other.

Whether they do is not asked of a program but measured: a few rows are also predicted alone, in
another order, and have to come out the same. A program whose rows interact (batch statistics,
attention between rows, a time series) fails this, and is run with all rows at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, namespace, to_numpy
from moment_calculus.numerics.one_thread import one_thread_at_a_time
from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.predictions.moments import Moments
from moment_calculus.predictions.site import Axes, PredictedSite
from moment_calculus.values.memory import TooLarge, counted

FEW = 64  # rows that are always predicted at once
LARGE = 2.0**29  # bytes of all values beyond which rows go in blocks
OF_A_BLOCK = 2.0**28  # bytes of the values of a block; more are no faster
FEWEST, MOST = 16, 2048  # rows of a block
# Relative differences, and such to the largest value, by which equal rows may differ: other sizes
# of a matrix product round differently, and series end at another term.
RELATIVE, OF_LARGEST = 2e-3, 2e-4

Predictions = Mapping[str, Any]


class Interacting(Exception):
    """Rows depend on each other, or the program does not take fewer rows."""


@dataclass(frozen=True)
class Rows:
    """A program whose arguments have rows, which may be chosen."""

    # Predictions, or a sum of theirs, from indices of rows, or None for all of them.
    predict: Callable[[Any], Any]
    count: int | None  # rows of the arguments; None if no argument has any
    context: Callable[[], AbstractContextManager] = nullcontext  # of what is predicted later
    split: Callable[[Any, int], Any] | None = None  # a random key into one for each block

    def blocks(self, size: int) -> list[np.ndarray]:
        """Return the indices of every block; the last row fills the last one."""
        count = self.count or 0
        starts = range(0, count, size)
        return [np.minimum(np.arange(start, start + size), count - 1) for start in starts]

    @classmethod
    def of(cls, leaves: Sequence[Any], predict: Callable[..., Any], **options: Any) -> Rows:
        """Return the rows of arguments, whose first array says how many there are.

        ``predict`` gets the arrays with a number of rows cut, and the rest as it is.
        """
        shapes = [tuple(getattr(leaf, "shape", ())) for leaf in leaves]
        count = next((shape[0] for shape in shapes if shape), None)

        def predict_rows(chosen: Any) -> Any:
            if chosen is None:
                return predict(leaves)
            has_rows = [shape[:1] == (count,) for shape in shapes]
            pairs = zip(leaves, has_rows, strict=True)
            return predict([leaf[chosen] if cut else leaf for leaf, cut in pairs])

        return cls(predict_rows, None if any(map(is_traced, leaves)) else count, **options)


def leading_lengths(leaves: Sequence[Any]) -> frozenset[int]:
    """Return the lengths of the first axes of arguments."""
    return frozenset(leaf.shape[0] for leaf in leaves if getattr(leaf, "shape", ()))


def in_blocks(rows: Rows, size: int | None, limit: float) -> Predictions:
    """Return the predictions of all rows, in blocks where asked for or where memory asks for it."""
    if size is not None:
        return _as_asked(rows, size)
    if rows.count is None or rows.count <= FEW:
        return rows.predict(None)
    with contextlib.suppress(TooLarge):
        if not _are_too_many(rows, min(limit, LARGE)):
            with counted(min(limit, LARGE)):
                return rows.predict(None)
    try:
        return _blocked(rows, None, min(limit, OF_A_BLOCK))
    except Interacting:
        return rows.predict(None)


def _are_too_many(rows: Rows, limit: float) -> bool:
    """Return whether a few rows tell that all of them take too much, before one array of all does.

    Squares of all inputs are made, and not counted, before the first value is.
    """
    count = rows.count or 0
    with contextlib.suppress(Interacting):
        return count > MOST and _few_alone(rows, 4)[2] * count > limit
    return False


def _as_asked(rows: Rows, size: int) -> Predictions:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ValueError(f"batch_size={size!r} is no positive number of rows")
    if rows.count is None:
        raise ValueError(f"batch_size={size} cuts the rows of arrays, and no argument is one")
    if size >= rows.count:
        return rows.predict(None)
    try:
        return _blocked(rows, int(size), OF_A_BLOCK)
    except Interacting as error:
        raise ValueError(
            f"batch_size={size}: the rows cannot be predicted in blocks: {error}; leave batch_size "
            "out to predict all rows at once"
        ) from error.__cause__


def _blocked(rows: Rows, size: int | None, limit: float) -> Predictions:
    """Return predictions in blocks; raise Interacting where blocks differ from a few rows alone."""
    chosen, alone, used = _few_alone(rows, 3 if size == 4 else 4)
    asked = size is not None
    if size is None:
        size = _size_of_blocks(limit, used, rows)
    collected: dict[str, _Collected] = {}
    for block in rows.blocks(size):
        for name, part in rows.predict(block).items():
            if name not in alone:
                raise Interacting(f"site '{name}' is there for some rows only")
            known = collected.setdefault(name, _Collected(name, alone[name], chosen, asked))
            known.add(part, block)
    return {name: part.joined(rows, size) for name, part in collected.items()}


def _few_alone(rows: Rows, most: int) -> tuple[np.ndarray, Any, float]:
    """Return indices of a few rows in no order, their prediction, and the bytes of one row."""
    count = rows.count or 0
    chosen = np.array([count - 1, count // 2, 1, 0][:most])
    try:
        with counted() as memory:
            alone = rows.predict(chosen)
        with counted() as fewer:  # both have what all rows share, such as scaled weights
            rows.predict(chosen[:2])
    except Exception as error:  # a program may fail in any way on fewer rows
        raise Interacting(f"the model does not run on {len(chosen)} of them ({error})") from error
    return chosen, alone, (memory.bytes - fewer.bytes) / (len(chosen) - 2)


def rows_of_a_sum(rows: Rows, limit: float) -> int | None:
    """Return how many rows at once a sum over rows, such as a score, takes; None: all of them."""
    if rows.count is None or rows.count <= FEW:
        return None
    try:
        if not _are_too_many(rows, min(limit, LARGE)):
            with counted(min(limit, LARGE)):
                rows.predict(None)
            return None
    except TooLarge:
        pass
    return _rows_in_blocks(rows, min(limit, OF_A_BLOCK))


def _rows_in_blocks(rows: Rows, limit: float) -> int | None:
    try:
        chosen, together, used = _few_alone(rows, 4)
        parts = sum(rows.predict(part) for part in (chosen[:1], chosen[1:]))
    except Exception:  # a program may fail in any way on one row
        return None
    if not is_close(to_numpy(parts), to_numpy(together)):
        return None
    return _size_of_blocks(limit, used, rows)


def sum_of_rows(rows: Rows, size: int | None) -> Any:
    """Return a sum over rows, of so many at once; None: of all of them."""
    if size is None:
        return rows.predict(None)
    indices = np.arange(rows.count or 0)
    return sum(rows.predict(indices[at : at + size]) for at in range(0, len(indices), size))


def _size_of_blocks(limit: float, used: float, rows: Rows) -> int:
    return min(int(min(max(limit / max(used, 1.0), FEWEST), MOST)), rows.count or 0)


class _Collected:
    """What blocks predicted for a site, compared with a few rows alone."""

    def __init__(self, name: str, alone: Any, chosen: np.ndarray, drops_covariances: bool) -> None:
        self.name, self.alone, self.chosen = name, alone, chosen
        self.drops_covariances = drops_covariances  # those between rows
        self.axis: int | None = None  # of the rows
        self.first: Any = None
        self.arrays: list[tuple[Array, ...]] = []

    def add(self, part: Any, block: np.ndarray) -> None:
        """Add a block; raise Interacting if rows differ from those predicted alone."""
        if self.first is None:
            self.first = part
            self.axis = row_axis(self.name, part, self.alone, len(block), len(self.chosen))
            if is_joint(part, self.axis) and not self.drops_covariances:
                raise Interacting(f"'{self.name}' has covariances between them")
        arrays = arrays_of(part, self.axis)
        here = np.flatnonzero(np.isin(self.chosen, block))
        where = np.searchsorted(block, self.chosen[here])
        for array, alone in zip(arrays, arrays_of(self.alone, self.axis), strict=True):
            actual, expected = to_numpy(array), to_numpy(alone)
            if self.axis is not None:
                actual = np.take(actual, where, axis=self.axis)
                expected = np.take(expected, here, axis=self.axis)
            if not is_close(actual, expected):
                raise Interacting(f"those of site '{self.name}' depend on each other")
        if self.axis is not None or not self.arrays:
            # A copy: a view would keep all that the block was computed from.
            self.arrays.append(tuple(namespace(part).asarray(part, copy=True) for part in arrays))

    def joined(self, rows: Rows, size: int) -> Any:
        """Return the prediction of all rows."""
        if self.axis is None:
            return self.first
        arrays = _joined_arrays(self.arrays, rows.count or 0, self.axis)
        if not isinstance(self.first, PredictedSite):
            kind = "covariance" if _has_covariance(self.first, self.axis) else "variance"
            given: Any = {kind: arrays[1]}
            return Moments(arrays[0], **given).attributed(lambda: _no_attribution(self.name))
        return BlockedSite(self.first, arrays, BlockPlan(rows, size, self.axis))


def _joined_arrays(blocks: list[tuple[Array, ...]], count: int, axis: int) -> list[Array]:
    """Return the arrays of all rows."""
    xp = namespace(blocks[0][0])
    return [
        _first_rows(xp.concat(list(parts), axis=axis), count, axis)
        for parts in zip(*blocks, strict=True)
    ]


def arrays_of(prediction: Any, axis: int | None) -> tuple[Array, ...]:
    """Return mean and variances of a prediction, or moments with covariances between features."""
    if isinstance(prediction, PredictedSite):
        return prediction.mean, prediction.epistemic_variance, prediction.aleatoric_variance
    spread = prediction.covariance if _has_covariance(prediction, axis) else prediction.variance
    return prediction.mean, spread


def _has_covariance(moments: Moments, axis: int | None) -> bool:
    return moments.covariance is not None and axis != moments.mean.ndim - 1


def is_joint(prediction: Any, axis: int | None) -> bool:
    """Return whether moments have covariances between rows, which blocks do not know."""
    moments = not isinstance(prediction, PredictedSite)
    return moments and prediction.covariance is not None and not _has_covariance(prediction, axis)


def row_axis(name: str, prediction: Any, alone: Any, rows: int, few: int) -> int | None:
    """Return the axis of a site that has the rows; None if the site has none."""
    shape, other = tuple(prediction.mean.shape), tuple(alone.mean.shape)
    if shape == other:
        return None
    axes = [axis for axis, size in enumerate(shape) if other[axis : axis + 1] != (size,)]
    fits = len(shape) == len(other) and len(axes) == 1
    if not fits or (shape[axes[0]], other[axes[0]]) != (rows, few):
        raise Interacting(f"site '{name}' has the shape {shape} for {rows} rows")
    if isinstance(prediction, PredictedSite):
        elements, _, summed = prediction._axes
        if axes[0] >= len(elements) - summed:
            raise Interacting(f"those of site '{name}' are one event")
    return axes[0]


def is_close(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether rows are equal but for rounding; of NaN where both are."""
    finite = np.abs(expected[np.isfinite(expected)])
    absolute = OF_LARGEST * float(finite.max(initial=0.0))
    return np.allclose(actual, expected, rtol=RELATIVE, atol=absolute, equal_nan=True)


def _first_rows(array: Array, count: int, axis: int) -> Array:
    return array[(slice(None),) * axis + (slice(count),)]


def _no_attribution(name: str) -> NoReturn:
    raise UnsupportedMoments(
        f"site '{name}': rows that were predicted in blocks are not attributed",
        remedy="predict the rows in question alone, or all at once by batch_size= their number",
    )


class BlockPlan(NamedTuple):
    """How the rows of a site are predicted again."""

    rows: Rows
    size: int  # rows of a block
    axis: int  # of the rows in the mean


@one_thread_at_a_time
class BlockedSite(PredictedSite):
    """Prediction of a site whose rows were predicted in blocks.

    Moments are kept; other quantities predict the blocks again, so that the memory is that of
    one block.
    """

    def __init__(self, first: PredictedSite, moments: list[Array], plan: BlockPlan) -> None:
        self._plan, self._count = plan, plan.rows.count
        elements = list(first._axes.element_shape)
        elements[plan.axis] = plan.rows.count or 0
        self._axes: Axes = first._axes._replace(element_shape=tuple(elements))
        self.name, self.distribution = first.name, first.distribution
        self.mean, self.epistemic_variance, self.aleatoric_variance = moments
        self._marginal, self._context = first._marginal, plan.rows.context

    def _of_blocks(self, ask: Callable[..., Any], axes: int, *values: Any, key: tuple = ()) -> Any:
        """Return what blocks answer; ``axes`` is the number of axes of the answer, from behind."""
        blocks = self._plan.rows.blocks(self._plan.size)
        split = self._plan.rows.split
        keys = [split(each, len(blocks)) for each in key] if split else []
        answers = [
            ask(
                self._again(block),
                *(self._cut(value, block) for value in values),
                *(each[index] for each in keys),
            )
            for index, block in enumerate(blocks)
        ]
        if isinstance(answers[0], tuple):
            return tuple(self._joined(list(part), axes) for part in zip(*answers, strict=True))
        return self._joined(answers, axes)

    def _again(self, block: np.ndarray) -> Any:
        """Return the prediction of a block; raise RuntimeError if it is another one by now."""
        with self._context():
            found = self._plan.rows.predict(block)[self.name]
        mean = np.take(to_numpy(self.mean), block, axis=self._plan.axis)
        if not is_close(to_numpy(found.mean), mean):
            raise RuntimeError(
                f"site '{self.name}': the parameters have changed since predict was called, which "
                "keeps moments, and predicts rows again for anything else: call predict again"
            )
        return found

    def __reduce__(self) -> tuple:
        """Return what to pickle: the prediction of every block."""
        rows, size, axis = self._plan
        parts = [self._again(block) for block in rows.blocks(size)]
        options = {"count": rows.count, "context": rows.context, "split": rows.split}
        return _of_stored_blocks, (parts, size, axis, options)

    def _joined(self, answers: list[Array], axes: int) -> Array:
        axis = answers[0].ndim - axes + self._plan.axis
        return _first_rows(namespace(answers[0]).concat(answers, axis=axis), self._count or 0, axis)

    def _cut(self, value: Any, block: np.ndarray) -> Any:
        """Return the rows of observations; what has no axis of rows serves all of them."""
        value = np.asarray(value) if isinstance(value, list) else value
        axis = getattr(value, "ndim", 0) - self._axes_of_outcome + self._plan.axis
        if axis < 0 or value.shape[axis] != self._count:
            return value
        return value[(slice(None),) * axis + (block,)]

    @property
    def _axes_of_outcome(self) -> int:
        return len(self._axes.element_shape) + self._axes.event_axes

    @property
    def _axes_of_batch(self) -> int:
        return len(self._axes.element_shape) - self._axes.independent_axes

    @property
    def probs(self) -> Array:
        """As of any prediction."""
        return self._of_blocks(lambda site: site.probs, self.mean.ndim)

    def log_prob(self, value: Array) -> Array:
        """As of any prediction."""
        return self._of_blocks(lambda site, part: site.log_prob(part), self._axes_of_batch, value)

    def cdf(self, value: Array) -> Array:
        """As of any prediction."""
        return self._of_blocks(lambda site, part: site.cdf(part), self._axes_of_outcome, value)

    def quantile(self, q: Any) -> Array:
        """As of any prediction."""
        return self._of_blocks(lambda site: site.quantile(q), self._axes_of_outcome)

    def credible_interval(self, mass: float) -> tuple[Array, Array]:
        """As of any prediction."""
        return self._of_blocks(lambda site: site.credible_interval(mass), self.mean.ndim)

    @property
    def entropy(self) -> Array:
        """As of any prediction."""
        return self._of_blocks(lambda site: site.entropy, self._axes_of_batch)

    @property
    def mutual_information(self) -> Array:
        """As of any prediction."""
        return self._of_blocks(lambda site: site.mutual_information, self._axes_of_batch)

    @property
    def variation_ratio(self) -> Array:
        """As of any prediction."""
        return self._of_blocks(lambda site: site.variation_ratio, self._axes_of_outcome)

    def sample(self, n: int, *key: Any) -> Array:
        """Draw from the predictive distribution of every element, as of any prediction."""
        return self._of_blocks(
            lambda site, *own: site.sample(n, *own), self._axes_of_outcome, key=key
        )

    def attribution(self) -> NoReturn:
        """Raise UnsupportedMoments: the sources of a block are not those of another one."""
        _no_attribution(self.name)


def _of_stored_blocks(
    parts: list[PredictedSite], size: int, axis: int, options: dict[str, Any]
) -> BlockedSite:
    """Return the prediction of all rows from that of every block."""
    rows = Rows(lambda block: {parts[0].name: parts[block[0] // size]}, **options)
    moments = _joined_arrays([arrays_of(part, axis) for part in parts], rows.count or 0, axis)
    return BlockedSite(parts[0], moments, BlockPlan(rows, size, axis))


def check_at_once(size: int | None, propagation: str) -> None:
    """Raise ValueError if rows that share draws are to go in blocks."""
    if size is not None:
        raise ValueError(
            f"batch_size={size} is of predictions by moments, and propagation={propagation!r} "
            "shares draws between rows: leave it out, or pass fewer rows"
        )
