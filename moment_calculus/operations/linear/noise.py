"""What random weights and biases of a linear map add to the covariance of its outputs."""

from __future__ import annotations

from typing import Any

from moment_calculus.numerics.arrays import Array, affine, namespace
from moment_calculus.operations.linear.checks import has_dependent_elements
from moment_calculus.operations.linear.links import AddedCovariance, links_of
from moment_calculus.operations.shapes.reshaping import flattened
from moment_calculus.values import Gaussian


def mean_of(operand: Any) -> Array:
    """Return the mean of a value, or an array itself."""
    return operand.mean if isinstance(operand, Gaussian) else operand


def noise_of(x: Any, second_moment: Array, w: Any, b: Any) -> AddedCovariance:
    """Return S (v + μ∘μ) + t, what random weights and biases add to the variances."""
    shift = b.variance if isinstance(b, Gaussian) else None
    if not isinstance(w, Gaussian):
        return AddedCovariance(shift)
    links = links_of(w)
    if links is None and has_dependent_elements(w):
        return AddedCovariance(_dependent_noise(x, w, shift))
    return AddedCovariance(affine(second_moment, w.variance, shift)).with_links(links or (), x)


def _dependent_noise(x: Any, w: Gaussian, shift: Array | None) -> Array:
    """Return the variances of the outputs by a matrix whose elements all depend on each other."""
    vector, (outputs, size) = flattened(w), w.shape
    assert vector is not None
    covariance, xp = vector.joint_covariance(), namespace(w.mean)
    pairs = xp.reshape(covariance, (outputs, size, outputs, size))
    rows = xp.stack([pairs[o, :, o, :] for o in range(outputs)])
    mean = mean_of(x)
    variance = xp.sum((mean[..., None, None, :] @ rows)[..., 0, :] * mean[..., None, :], axis=-1)
    if isinstance(x, Gaussian):
        variance = variance + affine(x.variance, w.variance)
    return variance if shift is None else variance + shift
