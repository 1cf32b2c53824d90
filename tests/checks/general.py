"""The properties that every row of ``tests/cases/`` must have; each raises AssertionError.

A check takes a case; what a case offers is described in ``tests/cases/kinds.py``.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.checks.jaxprs import by_numpy

Check = Callable[[Any], None]


def needs(condition: Callable[[Any], Any]) -> Callable[[Check], Check]:
    """Say for which cases a property makes sense."""

    def mark(check: Check) -> Check:
        check.applies = condition
        return check

    return mark


def meetings(checks: Sequence[Check], cases: Sequence[Any]) -> list[Any]:
    """Parameters (check, case) of every property that applies to every case."""
    return [
        pytest.param(check, case, id=f"{case.name}-{check.__name__.removeprefix('check_')}")
        for case in cases
        for check in checks
        if applies(check, case)
    ]


def applies(check: Check, case: Any) -> bool:
    return bool(getattr(check, "applies", lambda case: True)(case))


# ---------------------------------------------------------------------------------------------
# Frameworks


def to_torch(arrays: Any, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    return tuple(torch.as_tensor(array).to(dtype) for array in arrays)


QUICK = {"xla_backend_optimization_level": 0}  # halves the time of compilation


def combined(outputs: dict[str, Any], alone: bool = False) -> Any:
    """A fixed combination of all outputs, in which no two entries can cancel unnoticed.

    With ``alone``, that of every element of a batch by itself.
    """
    total = 0.0
    for output in outputs.values():
        shape = output.shape[1:] if alone else output.shape
        weights = 1 + np.cos(np.arange(math.prod(shape))).reshape(shape)
        if isinstance(output, torch.Tensor):
            weights = torch.as_tensor(weights, dtype=output.dtype)
        total = total + (output * weights).sum()
    return total


def leaves_of(arrays: Any, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Tensors by which one can differentiate."""
    return [tensor.clone().requires_grad_() for tensor in to_torch(arrays, dtype)]


def torch_gradients(case: Any, arrays: Any) -> list[np.ndarray]:
    leaves = leaves_of(arrays)
    return gradients_by(leaves, combined(case.outputs(*leaves)))


def gradients_by(leaves: list[torch.Tensor], total: torch.Tensor) -> list[np.ndarray]:
    """Gradients of a number; zeros by what it does not depend on."""
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return [
        (0 * x if g is None else g).detach().numpy() for x, g in zip(leaves, gradients, strict=True)
    ]


# ---------------------------------------------------------------------------------------------
# Properties of every kind


def check_oracle(case: Any) -> None:
    """Quadrature of the plain function gives the same, or the row's bound holds."""
    arrays = case.example()
    actual, expected = case.outputs(*arrays), case.oracle(*arrays)
    if case.status == "exact":
        for name, value in expected.items():
            size = np.abs(value).max()
            assert_allclose(actual[name], value, case.tolerance, 1e-11 * size, err_msg=name)
    elif case.status == "lower bound":
        _check_lower_bound(case, arrays, actual["value"], expected["value"])
    else:
        _check_second_order(case, arrays)


def _check_lower_bound(case: Any, arrays: Any, actual: np.ndarray, expected: np.ndarray) -> None:
    """Below the truth, by no more than half the largest variance."""
    assert (actual <= expected).all()
    slack = 0.5 * np.max(np.sum(arrays[-1] ** 2, axis=-1), axis=-1)
    assert (actual >= expected - slack).all()


def _check_second_order(case: Any, arrays: Any) -> None:
    """Halving the standard deviations divides the error by about 16, as it is O(variance²)."""
    errors = []
    for by in (0.4, 0.2, 0.1):
        small = case.shrunk(arrays, by)
        errors.append(np.abs(case.outputs(*small)["value"] - case.oracle(*small)["value"]).max())
    assert errors[1] <= errors[0] / 12, errors
    assert errors[2] <= errors[1] / 12, errors


@needs(lambda case: hasattr(case, "plain"))
def check_zero_variance(case: Any) -> None:
    """Without randomness the moments are the plain function and zero, with finite gradients."""
    arrays = case.shrunk(case.example(), 0.0)
    actual = case.outputs(*to_torch(arrays))
    for name, expected in case.plain(*arrays).items():
        assert_allclose(actual[name], expected, rtol=1e-9, atol=1e-11, err_msg=name)
    assert all(np.isfinite(gradient).all() for gradient in torch_gradients(case, arrays))


@needs(lambda case: case.batched)
def check_batch_invariance(case: Any) -> None:
    """An element of a batch gets the same moments alone."""
    arrays = case.example()
    together = case.outputs(*arrays)
    for i in range(2):
        for name, output in case.outputs(*case.alone(arrays, i)).items():
            assert_allclose(output, together[name][i : i + 1], rtol=1e-9, atol=1e-12, err_msg=name)


def check_gradients(case: Any) -> None:
    """Autograd agrees with fourth-order differences along a direction."""
    arrays, generator = case.example(), np.random.default_rng(1)
    for i, gradient in enumerate(torch_gradients(case, arrays)):
        direction = generator.normal(size=gradient.shape)

        def along(step: float, i: int = i, direction: np.ndarray = direction) -> float:
            moved = (*arrays[:i], arrays[i] + step * direction, *arrays[i + 1 :])
            return float(combined(case.outputs(*to_torch(moved))))

        h = 1e-3
        difference = (8 * (along(h) - along(-h)) - along(2 * h) + along(-2 * h)) / (12 * h)
        assert_allclose((gradient * direction).sum(), difference, rtol=1e-5, atol=1e-7)


def check_float32(case: Any) -> None:
    """Single precision agrees with double precision."""
    arrays = case.example()
    double = case.outputs(*to_torch(arrays))
    for name, output in case.outputs(*to_torch(arrays, torch.float32)).items():
        assert output.dtype == torch.float32, name
        expected = double[name].numpy()
        tolerance = 1e-5 * np.abs(expected).max()
        assert_allclose(output.numpy(), expected, rtol=1e-4, atol=tolerance, err_msg=name)


# Rows that stand for their family where JAX evaluates them; it only traces the others.
EVALUATED = frozenset(
    """
    sigmoid softplus gelu_tanh ndtr exp sin squared
    normal normal_heteroscedastic normal_log_predictive predictive_aleatoric categorical_delta
    laplace student gamma_softplus weibull multivariate_normal bernoulli bernoulli_probit
    poisson_softplus gamma_poisson ordered_logistic gaussian_kl empirical_bayes_variance student_t
    tempered_normal_nonlinear tempered_dependent_normals tempered_bernoulli tempered_poisson
    tempered_laplace tempered_ordered_logistic
    linear linear_diagonal matmul_certain_left product_of_dependent permute_and_map
    batch_of_weights einsum_heads einsum_sum cumulative_sum where stack_of_slices take gather
    rms_norm softmax logsumexp
    convolution convolution_strided_dilated pool_of_shared_weights sum_of_positions_and_batch pad
    window_maximum
    linear_of_certain_inputs dropconnect layer_by_product square twice two_side_by_side
    """.split()
)


def check_frameworks(case: Any) -> None:
    """NumPy, torch and JAX agree, and the gradients of torch and JAX.

    JAX traces every row, as under ``jit``; those that stand for their family are evaluated.
    """
    arrays = case.example()
    reference = case.outputs(*arrays)
    _agree(case.outputs(*to_torch(arrays)), reference)
    with jax.enable_x64(True):
        inputs = tuple(map(jax.numpy.asarray, arrays))
        if case.name not in EVALUATED:
            traced = jax.eval_shape(lambda inputs: case.outputs(*inputs), inputs)
            assert {name: (a.shape, a.dtype) for name, a in traced.items()} == {
                name: (a.shape, a.dtype) for name, a in reference.items()
            }
            return

        def combine(inputs: Any) -> tuple[Any, dict[str, Any]]:
            outputs = case.outputs(*inputs)
            return combined(outputs), outputs

        gradients, outputs = by_numpy(jax.grad(combine, has_aux=True))(inputs)
    _agree(outputs, reference)
    for ours, theirs in zip(torch_gradients(case, arrays), gradients, strict=True):
        assert_allclose(theirs, ours, rtol=1e-7, atol=1e-9)


def _agree(outputs: dict[str, Any], reference: dict[str, Any]) -> None:
    for name, output in outputs.items():
        assert_allclose(output, reference[name], rtol=1e-9, atol=1e-11, err_msg=name)


def check_extreme(case: Any, ratios: np.ndarray, scales: np.ndarray, rho: np.ndarray) -> None:
    """In single precision nothing is NaN, infinite or a negative variance, nor its gradient.

    The first axis of μ/σ [n, 2], σ [n, 2] and ρ [n] numbers the points; as many of them are
    evaluated at once as the case can hold in a batch.
    """
    for arrays in case.extreme(ratios, scales, rho):
        tensors = leaves_of(arrays, torch.float32)
        outputs = case.outputs(*tensors)
        for name, output in outputs.items():
            wrong = ~torch.isfinite(output) | ((output < 0) & (name == "variance"))
            assert not wrong.any(), (name, output[wrong], np.argwhere(wrong.numpy()), tensors)
        for gradient in gradients_by(tensors, combined(outputs, alone=bool(case.batched))):
            wrong = ~np.isfinite(gradient)
            assert not wrong.any(), (gradient[wrong], np.argwhere(wrong), tensors)


Corners = tuple[np.ndarray, np.ndarray, np.ndarray]


def grid_of_corners() -> Corners:
    """The corners of the range |μ/σ| ≤ 1e4, 1e-6 ≤ σ ≤ 1e3, |ρ| ≤ 1, and places between them."""
    ratios = ((-1e4, 1e4), (0.0, 0.0), (1e4, 1e4), (-1e4, -1e4), (-30.0, 13.0))
    scales = ((1e-6, 1e-6), (1e3, 1e3), (1e-6, 1e3))
    corners = itertools.product(ratios, scales, (-1.0, 0.0, 0.999999))
    return tuple(map(np.array, zip(*corners, strict=True)))


SPECIAL = (0.0, 1e-40, 1.0, 1e4)  # of μ/σ, with either sign


def random_corners(count: int, seed: int = 0) -> Corners:
    """Points of the range, of any magnitude; some special, some twins."""
    generator = np.random.default_rng(seed)
    pairs = (count, 2)

    def mixed(*alternatives: np.ndarray) -> np.ndarray:
        """One of the arrays for each place, as likely as the others."""
        return np.choose(generator.integers(len(alternatives), size=pairs), alternatives)

    size = mixed(
        generator.uniform(0, 1e4, size=pairs),
        10.0 ** generator.uniform(-4, 4, size=pairs),
        10.0 ** generator.uniform(-4, 4, size=pairs),
        generator.choice(SPECIAL, size=pairs),
    )
    ratios = size * generator.choice([-1.0, 1.0], size=pairs)
    scales = 10.0 ** generator.uniform(-6, 3, size=pairs)
    rho = generator.uniform(-1, 1, size=count)
    rho[::5] = generator.choice([-1.0, 0.0, 1.0], size=rho[::5].shape)
    twins = generator.random(count) < 0.1
    ratios[twins, 1], scales[twins, 1] = ratios[twins, 0], scales[twins, 0]
    return ratios, scales, rho


@needs(lambda case: case.extremes)
def check_corners(case: Any) -> None:
    """The same at fixed corners of the range."""
    check_extreme(case, *grid_of_corners())


@needs(lambda case: case.extremes)
def check_range(case: Any) -> None:
    """The same at random points of the range."""
    check_extreme(case, *random_corners(case.points))


GENERAL = [
    check_zero_variance,
    check_batch_invariance,
    check_gradients,
    check_float32,
    check_frameworks,
    check_corners,
    check_range,
]
