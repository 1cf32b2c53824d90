"""Moments as a user passes and receives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

import array_api_compat

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    diagonal_matrix,
    namespace,
    outer,
    positive_part,
    standard_deviation,
    to_numpy,
)
from moment_calculus.numerics.execution import to_jax
from moment_calculus.predictions.frames import is_frame, with_gaps
from moment_calculus.values import Gaussian, Spread, Ties, Value, features_last
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements


class Moments:
    """Mean and variance, or mean and covariance over the trailing axis, of an uncertain array.

    Functions given to ``propagate`` take them, and so do models, in place of inputs that are
    measured with noise or missing: in the objectives, ``fit`` and ``predict``. Train such models
    by ``BBAlphaELBO(alpha=1.0)``, which averages the density of a datum over its inputs. The
    ELBO averages the logarithm, so that the noise of inputs is learned as noise of the
    observations, too: with a fifth of boston's entries missing, its test log-likelihood was
    0.18 below that of imputed means, and that of BB-α 0.01 above it.

    Args:
        mean: [..., d].
        variance: [..., d], non-negative; exactly one of variance and covariance is given.
        covariance: [..., d, d], symmetric positive semi-definite.

    Raises:
        ValueError: if neither or both are given, or a shape does not fit.

    Example:
        >>> import numpy as np
        >>> Moments(np.zeros(2), covariance=np.eye(2)).variance
        array([1., 1.])
    """

    __slots__ = ("_attribute", "covariance", "mean", "variance")

    def __init__(
        self, mean: Array, *, variance: Array | None = None, covariance: Array | None = None
    ) -> None:
        if (variance is None) == (covariance is None):
            raise ValueError("give exactly one of variance= and covariance=")
        shape = tuple(mean.shape)
        if variance is not None and tuple(variance.shape) != shape:
            raise ValueError(f"variance has shape {tuple(variance.shape)}, mean has {shape}")
        if covariance is not None and tuple(covariance.shape) != (*shape, *shape[-1:]):
            raise ValueError(
                f"covariance has shape {tuple(covariance.shape)}, a mean of shape {shape} needs "
                f"{(*shape, *shape[-1:])}"
            )
        self.mean, self.covariance = mean, covariance
        self._attribute: Callable[[], Any] | None = None
        self.variance = positive_part(diagonal(covariance)) if variance is None else variance

    @classmethod
    def missing(cls, x: Any, *, columns_of: Any = None) -> Moments:
        """Describe an array with missing entries: a missing one has the moments of its column.

        Args:
            x: [rows, ...], NaN where an entry is missing; or a data frame of numbers with
                gaps, or one of its columns.
            columns_of: rows that give the moments of the columns, such as those of the
                training for ``x`` of a test; by default ``x``. Of two frames the columns
                of this one are taken, by name.

        Returns:
            Moments: of variance zero where an entry is known; elsewhere with mean and
            variance of the known entries of its column.

        Raises:
            ValueError: if a column has no known entry, or ``x`` lacks one of ``columns_of``.
            TypeError: if a column holds text.

        Example:
            >>> import numpy as np
            >>> Moments.missing(np.array([[1.0, 2.0], [3.0, np.nan], [2.0, 4.0]])).variance
            array([[0., 0.],
                   [0., 1.],
                   [0., 0.]])
        """
        names = getattr(x if columns_of is None else columns_of, "columns", ())
        if columns_of is not None and is_frame(x) and is_frame(columns_of):
            x = _same_columns(x, columns_of)
        x, given = with_gaps(x), None if columns_of is None else with_gaps(columns_of)
        xp, known = namespace(x), ~namespace(x).isnan(x)
        mean, variance = _of_columns(x if given is None else given, names)
        return cls(xp.where(known, x, mean), variance=xp.where(known, 0.0 * variance, variance))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mean."""
        return tuple(self.mean.shape)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def mapped(self, function: Callable[[Array], Array]) -> Moments:
        """Return moments with a function of the mean, and of the variance or the covariance."""
        if self.covariance is not None:
            return Moments(function(self.mean), covariance=function(self.covariance))
        return Moments(function(self.mean), variance=function(self.variance))

    def _refuse(self, *_: Any) -> NoReturn:
        """Raise TypeError for arithmetic, which a model does that gets moments as they are."""
        raise TypeError(
            "Moments are no array: DeterministicELBO, BBAlphaELBO and RenyiELBO, fit, predict and "
            "SVI of this package put their values into a model, and propagate into a function; "
            "elsewhere pass their mean, or draws"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __rtruediv__ = __matmul__ = __rmatmul__ = __pow__ = __neg__ = __getitem__ = _refuse
    __array_priority__ = 1000  # NumPy leaves operators to it

    def attributed(self, attribute: Callable[[], Any]) -> Moments:
        """Return these moments, with the function that :meth:`attribution` calls."""
        self._attribute = attribute
        return self

    def attribution(self) -> Any:
        """Attribute the variance of what ``propagate`` or ``predict`` returned to its sources.

        Returns:
            Attribution: the variance as a sum over inputs or latent sites, whose elements
            are told apart, Gaussian matches of activations and products of noise; with a
            table and a plot.

        Raises:
            ValueError: of moments that were given, or that passed a transformation of JAX.
            UnsupportedMoments: if the sweep backwards cannot go through a step.
        """
        if self._attribute is None:
            raise ValueError(
                "only moments that propagate or predict returned know where their variance comes "
                "from: call attribution() on them, outside of jax.jit"
            )
        return self._attribute()

    def __reduce__(self) -> tuple:
        """Return what to pickle: the moments, without the steps that computed them."""
        refuse = None if self._attribute is None else partial(refuse_attribution, "moments")
        parts = self.mean, self.variance, self.covariance
        if array_api_compat.is_jax_array(self.mean):
            arrays = [part if part is None else to_numpy(part) for part in parts]
            return _restored_in_jax, (type(self), arrays, refuse)
        return _restored, (type(self), [*map(without_gradient, parts)], refuse)

    def __repr__(self) -> str:
        """Return the shape, and whether variances or covariances were given."""
        kind = "variance" if self.covariance is None else "covariance"
        return f"Moments(shape={tuple(self.mean.shape)}, {kind})"


def _restored(kind: type[Moments], parts: list, attribute: Any) -> Moments:
    moments = object.__new__(kind)
    moments.mean, moments.variance, moments.covariance = parts
    moments._attribute = attribute
    return moments


def _restored_in_jax(kind: type[Moments], parts: list, attribute: Any) -> Moments:
    return _restored(kind, [part if part is None else to_jax(part) for part in parts], attribute)


def without_gradient(tensor: Any) -> Any:
    """Return a copy of a tensor that has no gradient, and of a view no more than is seen."""
    return tensor.detach().clone() if hasattr(tensor, "detach") else tensor


def refuse_attribution(name: str) -> NoReturn:
    """Raise UnsupportedMoments: what was pickled or copied has no steps to go back through."""
    raise UnsupportedMoments(
        f"'{name}': what was pickled or copied no longer knows the sources of its variance",
        remedy="call attribution() on what predict returned, and pickle its table()",
    )


def _same_columns(frame: Any, columns_of: Any) -> Any:
    """Return a frame with the columns of another one."""
    absent = [str(name) for name in columns_of.columns if name not in frame.columns]
    if absent:
        raise ValueError(
            f"x lacks the column(s) {', '.join(absent)} of columns_of: make both frames by the "
            "same steps, as by one ColumnTransformer of scikit-learn"
        )
    return frame[[*columns_of.columns]]


def _of_columns(x: Array, names: Iterable[Any] = ()) -> tuple[Array, Array]:
    """Return mean and variance of the known entries of every column."""
    xp, known = namespace(x), ~namespace(x).isnan(x)
    count = xp.sum(xp.astype(known, x.dtype), axis=0)
    if bool(xp.any(count == 0)):
        empty = [str(name) for name, n in zip(names, count, strict=False) if n == 0]
        which = f"column {', '.join(map(repr, empty))}" if empty else "a column"
        raise ValueError(f"{which} has no known entry: leave it out")
    mean = xp.sum(xp.where(known, x, xp.zeros_like(x)), axis=0) / count
    squares = xp.where(known, (x - mean) ** 2, xp.zeros_like(x))
    return mean, xp.sum(squares, axis=0) / count


def as_value(moments: Moments, name: str, propagation: Propagation) -> Gaussian:
    """Return moments as a Gaussian value, which messages call ``name``."""
    covariance, variance = moments.covariance, moments.variance
    full = propagation.has_full_covariance
    if full and covariance is None and len(moments.mean.shape) == 1:
        # Without a covariance a vector would be taken for the weights of a linear map.
        covariance = lambda: diagonal_matrix(variance)  # noqa: E731
    known = None if propagation.covariance == "diagonal" else covariance
    return Gaussian(
        moments.mean,
        Spread(variance, known, full),
        axis=-1 if len(moments.mean.shape) else None,
        support=all_elements([name]),
        ties=Ties.NONE if moments.covariance is None else Ties.FEATURES,
        propagation=propagation,
    )


def moments_of_value(value: Value | Array) -> Moments:
    """Return the moments of a value; the variance of a certain array is zero."""
    if not hasattr(value, "gaussian"):
        return Moments(value, variance=namespace(value).zeros_like(value))
    gaussian = value.gaussian()
    if gaussian.propagation.has_full_covariance and gaussian.axis == -1:
        last = features_last(gaussian.mean, gaussian.axis)
        covariance = gaussian.joint_covariance()
        shape = (*last.shape, last.shape[-1])
        return Moments(
            gaussian.mean, covariance=namespace(covariance).broadcast_to(covariance, shape)
        )
    return Moments(gaussian.mean, variance=gaussian.variance)


def draws_from(moments: Moments, noise: Array) -> Array:
    """Return Gaussian draws [draws, ..., d] from standard normal noise of that shape."""
    if moments.covariance is None:
        return moments.mean + standard_deviation(moments.variance) * noise
    values, vectors = namespace(noise).linalg.eigh(moments.covariance)
    root = vectors * standard_deviation(values)[..., None, :]  # also of a singular covariance
    return moments.mean + (root @ noise[..., None])[..., 0]


def moments_of_draws(draws: Array, full: bool) -> Moments:
    """Return the moments of draws [draws, ...], in full mode with a covariance."""
    xp = namespace(draws)
    if draws.shape[0] == 1:
        return moments_of_value(draws[0])  # with variance zero
    mean = xp.mean(draws, axis=0)
    deviations = draws - mean
    if not full or len(mean.shape) == 0:
        return Moments(
            mean, variance=xp.sum(deviations * deviations, axis=0) / (draws.shape[0] - 1)
        )
    products = xp.sum(outer(deviations, deviations), axis=0)
    return Moments(mean, covariance=products / (draws.shape[0] - 1))
