"""Find the layers of a recorded program, and why their moments may be wrong."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.combinators import with_arrays_moved
from moment_calculus.functions.pairs.mehler import mehler_certificate
from moment_calculus.numerics.arrays import Array, constants, namespace, to_numpy
from moment_calculus.operations.backward.settled import asked_value, is_pulled_back
from moment_calculus.operations.dropout.noise import Bits, Noise, Uniform
from moment_calculus.operations.elementwise.stated import Stated
from moment_calculus.operations.linear.maps import LinearMap
from moment_calculus.operations.linear.reductions import SumOverFeatures
from moment_calculus.operations.normalised.normalisation import Normalised
from moment_calculus.operations.normalised.softmax import FunctionOfLogits, LogitsStep
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.values import Deferred, Gaussian, PendingWeight
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.elementwise import with_rule_book
from moment_calculus.values.propagation import EXACT
from moment_calculus.values.spread import features_last

MATCHED = "its input is matched by a Gaussian, which it is not"
DROPPED = 'covariance="diagonal" drops the dependence between its inputs'
BACKWARD = (
    'covariance="backward" takes functions by their expected derivatives, at variances of their '
    "inputs without the dependence between units"
)
APPROXIMATE = "the moments of this function are approximate even for a Gaussian input"
BOOK = "by a rule of the rule book '{name}'"


def reason_of(value: Gaussian) -> str:
    """Return why moments may differ from those of draws; empty if not known."""
    if _is_replaced(value):
        return BOOK.format(name=value.propagation.rulebook.name)
    if isinstance(value.step, LogitsStep | Normalised):
        return APPROXIMATE
    sources = value.step.inputs
    if is_pulled_back(value):
        return BACKWARD
    if (
        not value.propagation.has_full_covariance
        and value.step.assumes_independence
        and not all(x.independent for x in sources)
    ):
        return DROPPED
    if isinstance(value.step, LinearMap) or _keeps_gaussian(value):
        return ""  # exact: mean and covariance need only those of the inputs
    return "" if all(map(is_gaussian, sources)) else MATCHED


def _is_replaced(value: Gaussian) -> bool:
    """Return whether the rule book replaces the exact rule of the value's step."""
    step, book = value.step, value.propagation.rulebook
    if book is EXACT:
        return False
    if step.function is not None:
        return with_rule_book(*step.function) is not step.function[1]
    several = len(step.inputs) > 1 and {"product", "linear", "convolution"} & book.operations.keys()
    return isinstance(step, Stated) or bool(several)


def is_gaussian(value: Gaussian) -> bool:
    """Return whether a value is itself Gaussian, not only approximated by a Gaussian."""
    return all(map(_keeps_gaussian, ancestors(value)))


def _keeps_gaussian(value: Gaussian) -> bool:
    """Return whether a value is Gaussian if its inputs are."""
    step = value.step
    if isinstance(step, LinearMap):
        return step.mapped is None or all(x is step.mapped or x is step.bias for x in step.inputs)
    if not step.inputs:
        return not isinstance(step, Noise)
    moves = isinstance(step, Moved | SumOverFeatures)
    return moves or step.identity or step.affine is not None


def certificate_of(value: Gaussian) -> Array | None:
    """Return the largest error of a correlation by truncation of Mehler's series, or None.

    Cauchy–Schwarz on the omitted terms, in standard deviations of both features.
    """
    if value.step.function is None:
        return None
    base, activation = value.step.function
    if not base.has_covariance:
        return None
    if base.axis != -1:
        activation = with_arrays_moved(
            activation, lambda part: features_last(part, base.axis), base.shape
        )
    function, mean = with_rule_book(base, activation), features_last(base.mean, base.axis)
    variance = features_last(base.variance, base.axis)
    if function.pair_covariance(mean, variance, base.covariance) is not NotImplemented:
        return None
    order = base.propagation.rulebook.mehler_order
    bound = mehler_certificate(function, mean, base.covariance, order)
    return _largest_pair(bound, features_last(value.variance, base.axis))


def _largest_pair(bound: Array, variance: Array) -> Array:
    """Return the largest entry off the diagonal, in units of both deviations."""
    xp = namespace(bound)
    deviation = variance**0.5
    units = deviation[..., :, None] * deviation[..., None, :]
    off_diagonal = constants(1 - np.eye(bound.shape[-1]), bound) * bound
    return xp.max(
        xp.where(units > 0, off_diagonal / xp.where(units > 0, units, 1.0 + 0.0 * units), 0.0)
    )


LARGEST = 2**22  # largest number of covariance entries of one layer that are compared
_MASKS = PendingWeight | Uniform | Bits  # dropout masks that are not applied yet have no moments


@dataclass(frozen=True)
class RecordedOperation:
    """The result of one operation of a program."""

    operation: str  # name in the framework
    line: str  # the user's file and line, or empty
    value: Any  # a value of the calculus, or any other result
    site: str = ""  # the site, or "site.parameter", whose value this is


@dataclass(frozen=True, eq=False)
class Layer:
    """The moments of one operation."""

    operation: str  # name in the framework
    line: str  # the user's file and line
    site: str  # empty if the value is no site
    index: int  # index of the operation among all recorded ones
    shape: tuple[int, ...]
    axis: int | None  # the feature axis, negative; None for a batch of scalars
    reason: str  # why the moments may differ from those of draws; empty if unknown
    # Mean and variance, of the value's shape; covariance of the features of the first
    # batch elements, [batch, d, d], or None; bound on the error of any correlation by the
    # truncation of its series, or None.
    arrays: tuple[Any, Any, Any, Any]

    @property
    def label(self) -> str:
        """Return the name of the site, otherwise of the operation."""
        return self.site or self.operation

    @property
    def size(self) -> int:
        """Return the number of features."""
        return 1 if self.axis is None else self.shape[self.axis]

    @property
    def compared_count(self) -> int:
        """Return the number of batch elements whose covariances are compared."""
        return compared_count(self.shape, self.axis)

    @property
    def mean(self) -> np.ndarray:
        """Return the means, of the value's shape."""
        return self.arrays[0]

    @property
    def deviation(self) -> np.ndarray:
        """Return the standard deviations, of the value's shape."""
        return np.sqrt(np.maximum(self.arrays[1], 0.0))

    @property
    def covariance(self) -> np.ndarray | None:
        """Return covariances [batch, d, d] of the first batch elements, or None."""
        return self.arrays[2]

    @property
    def is_finite(self) -> bool:
        """Return whether all means and variances are finite."""
        return all(bool(np.isfinite(part).all()) for part in self.arrays[:2])

    def in_numpy(self) -> Layer:
        """Return the layer with NumPy arrays in double precision."""
        arrays: Any = tuple(
            None if part is None else to_numpy(part, np.float64) for part in self.arrays
        )
        return dataclasses.replace(self, arrays=arrays)

    def features(self, array: np.ndarray) -> np.ndarray:
        """Return draws [draws, ...] as [draws, batch, d] of compared batch elements."""
        last = np.moveaxis(array, self.axis, -1)  # type: ignore[arg-type]
        return last.reshape(len(array), -1, last.shape[-1])[:, : self.compared_count]


def compared_count(shape: tuple[int, ...], axis: int | None) -> int:
    """Return how many batch elements have compared covariances; 0 for scalars."""
    size, total = 1 if axis is None else shape[axis], int(np.prod(shape))
    return min(total // size, LARGEST // size**2) if size > 1 else 0


def layers_of(recorded: Sequence[RecordedOperation]) -> tuple[list[Layer], list[str]]:
    """Return the layers among recorded results, and texts on those without moments."""
    for item in recorded:
        if item.site and hasattr(item.value, "gaussian"):
            _matched(item)  # computes the moments of all inputs, which has_moments then reports
    # By serial number: a value that appears again, as a site, names the layer that it
    # already is.
    layers: dict[int, Layer] = {}
    left_out: list[str] = []
    for index, item in [pair for pair in enumerate(recorded) if _has_moments(pair[1])]:
        try:
            value = item.value.gaussian()
            if not isinstance(value, Gaussian):
                continue
            if (layer := layers.get(value.serial)) is not None:
                layers[value.serial] = dataclasses.replace(layer, site=layer.site or item.site)
            elif item.site or not _only_moves(value):
                layers[value.serial] = _layer(item, index, value)
        except UnsupportedMoments as error:
            left_out.append(f"{item.operation} at {item.line or '?'}: {error.cause}")
    return list(layers.values()), left_out


def _matched(item: RecordedOperation) -> None:
    with contextlib.suppress(UnsupportedMoments):  # layers_of reports it when it comes to this item
        item.value.gaussian()


def _has_moments(item: RecordedOperation) -> bool:
    """Return whether moments were computed for a recorded result."""
    if isinstance(item.value, Deferred):  # parts of a recognised composite stay without moments
        return bool(item.site) or item.value.has_moments
    return hasattr(item.value, "gaussian") and not isinstance(item.value, _MASKS)


def _only_moves(value: Gaussian) -> bool:
    """Return whether a value is a latent site, or rearranges another value."""
    step = value.step
    return not step.inputs or (isinstance(step, Moved) and not step.combines_elements)


def _layer(item: RecordedOperation, index: int, value: Gaussian) -> Layer:
    reason, asked = reason_of(value), asked_value(value)
    arrays = (value.mean, asked.variance, _first_covariances(value), _certificate(value))
    names = _operation(item, value), item.line, item.site
    return Layer(*names, index, value.shape, value.axis, reason, arrays)


def _operation(item: RecordedOperation, value: Gaussian) -> str:
    """Return the operation's name; of a recognised composite its own."""
    if isinstance(item.value, FunctionOfLogits):
        return item.value.name
    last = item.operation in ("mul", "div") and isinstance(value.step, Normalised)
    return "normalisation" if last else item.operation


def _first_covariances(value: Gaussian) -> Any:
    """Return covariances of the compared batch elements; None if not propagated."""
    count = compared_count(value.shape, value.axis)
    if not count or (covariance := value.covariance) is None:
        return None
    size = covariance.shape[-1]
    return namespace(covariance).reshape(covariance, (-1, size, size))[:count]


def _certificate(value: Gaussian) -> Any:
    """Return the bound for all batch elements; None if they are too many."""
    if value.axis is None or not value.has_covariance:
        return None
    entries = int(np.prod(value.shape)) * value.shape[value.axis]
    return certificate_of(value) if entries <= LARGEST else None
