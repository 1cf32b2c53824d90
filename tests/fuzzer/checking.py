"""What a program's moments are to first order, and the verdict on those that a host gives.

The standard deviations are 1e-4, so that J Σ Jᵀ is the covariance up to a factor 1 + O(1e-8), with
J the Jacobian at the means: that of torch in double precision, to which JAX is held too.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from moment_calculus.errors import CovarianceDroppedWarning, DependenceWarning, UnsupportedMoments
from tests.fuzzer.layers import Truth, over_masks, through
from tests.fuzzer.programs import Input, Program, compiled

OURS = (DependenceWarning, CovarianceDroppedWarning)
RELATIVE, FLOOR = 1e-3, 1e-12  # of a variance of about 1e-8


@dataclass(frozen=True)
class Verdict:
    """``right``, ``wrong``, ``crashed``, ``refused`` or ``warned``, and why."""

    kind: str
    reason: str = ""

    @property
    def accepted(self) -> bool:
        return self.kind in ("right", "warned")

    @property
    def failed(self) -> bool:
        return self.kind in ("wrong", "crashed")


def truth(program: Program) -> Truth:
    """The moments to first order."""
    if program.has_dropout:
        return over_masks(program, _means(program), _spread(list(program.inputs.values())))
    mixing = [line for line in program.lines if line.operation.mixes]
    names = list(dict.fromkeys([program.output, *(n for line in mixing for n in line.operands)]))
    function, means = program.values("torch", names), _means(program)
    values = dict(zip(names, function(*means), strict=True))
    places = tuple(range(len(means)))
    jacobians = dict(zip(names, torch.func.jacrev(function, argnums=places)(*means), strict=True))
    spread = _spread(list(program.inputs.values()))

    def covariance(*chosen: str) -> np.ndarray:
        sizes = [values[name].numel() for name in chosen]
        rows = [
            [part.reshape(size, -1) for part in jacobians[name]]
            for name, size in zip(chosen, sizes, strict=True)
        ]
        return through(tuple(map(torch.cat, zip(*rows, strict=True))), sum(sizes), spread)

    correlated = any(one.covariance is not None for one in program.inputs.values())
    known = not correlated and all(
        _is_diagonal(covariance(*dict.fromkeys(line.operands))) and not line.operation.mixes_again
        for line in mixing
    )
    return Truth(values[program.output].numpy(), covariance(program.output), known)


def _means(program: Program) -> list[torch.Tensor]:
    return [torch.as_tensor(one.mean) for one in program.inputs.values()]


def _spread(inputs: list[Input]) -> np.ndarray:
    """Covariance of all elements of all inputs."""
    blocks = [block for one in inputs for block in _blocks(one)]
    total = np.zeros(2 * (sum(map(len, blocks)),))
    start = 0
    for block in blocks:
        total[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return total


def _blocks(one: Input) -> list[np.ndarray]:
    if one.covariance is None:
        return [np.diag(one.variance.reshape(-1))]
    return list(one.covariance.reshape(-1, *one.covariance.shape[-2:]))


def _is_diagonal(covariance: np.ndarray) -> bool:
    size = np.abs(np.diagonal(covariance)).max(initial=0.0)
    return bool(
        np.abs(covariance - np.diag(np.diagonal(covariance))).max(initial=0.0) <= 1e-6 * size
    )


@dataclass(frozen=True)
class Host:
    """A host of the programs; ``forget`` frees what it keeps of those that ran."""

    name: str
    propagate: Callable
    moments: Callable
    array: Callable
    forget: Callable[[], None] = lambda: None


def torch_host() -> Host:
    from pyro_moments import Moments, propagate

    return Host("torch", propagate, Moments, lambda value: torch.as_tensor(value.copy()))


def jax_host(compiled: Callable | None = None) -> Host:
    """JAX with ``jit``, in a quarter of the time of every primitive's, or what is in its place."""
    import jax
    import jax.numpy as jnp

    from numpyro_moments import Moments, propagate

    def in_one_program(function: Callable, *inputs: Any, covariance: str) -> Any:
        run = lambda *inputs: propagate(function, *inputs, covariance=covariance)  # noqa: E731
        return (compiled or jax.jit)(run)(*inputs)

    return Host("jax", in_one_program, Moments, jnp.asarray, jax.clear_caches)


def verdict(program: Program, host: Host, mode: str = "full", weighted: bool = True) -> Verdict:
    """The verdict on one program in one host and mode, and then on its weighted sum."""
    expected = truth(program)
    first = _verdict(program.function(host.name), program, expected, host, mode)
    if not weighted or not first.accepted or expected.mean.ndim == 0:
        return first
    weights = 1 + np.round(np.cos(np.arange(expected.mean.size)), 2).reshape(expected.mean.shape)
    total = _total(expected, weights)
    second = _verdict(_summed(program, host, weights), program, total, host, mode)
    return Verdict(second.kind, f"weighted sum: {second.reason}") if second.failed else first


def _summed(program: Program, host: Host, weights: np.ndarray) -> Callable:
    source = program.source(host.name).rsplit("return ", 1)
    text = f"{source[0]}return (weights * {program.output}).sum()\n"
    return compiled(text, host.name, {**program.constants(), "weights": weights})


def _total(expected: Truth, weights: np.ndarray) -> Truth:
    """The truth of the weighted sum of all elements."""
    flat = weights.reshape(-1)
    return Truth(
        np.asarray((weights * expected.mean).sum()),
        np.asarray(flat @ expected.covariance @ flat).reshape(1, 1),
        expected.known and _is_diagonal(expected.covariance),
    )


def _verdict(
    function: Callable, program: Program, expected: Truth, host: Host, mode: str
) -> Verdict:
    try:
        result, warned = _run(function, program, host, mode)
        reason = difference(result, expected, mode)
    except UnsupportedMoments as refusal:
        return Verdict("refused", f"{refusal.operation}: {refusal.cause}")
    except Exception as error:
        return Verdict("crashed", f"{type(error).__name__}: {str(error)[:300]}")
    if not reason:
        return Verdict("right")
    return Verdict("warned" if warned else "wrong", reason)


def _run(function: Callable, program: Program, host: Host, mode: str) -> tuple[Any, bool]:
    """The moments, and whether the library warned."""
    inputs = []
    for one in program.inputs.values():
        spread = (
            {"variance": one.variance} if one.covariance is None else {"covariance": one.covariance}
        )
        spread = {name: host.array(value) for name, value in spread.items()}
        inputs.append(host.moments(host.array(one.mean), **spread))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = host.propagate(function, *inputs, covariance=mode)
    return result, any(issubclass(warning.category, OURS) for warning in caught)


def difference(result: Any, expected: Truth, mode: str) -> str:
    """What is wrong with moments; nothing if they are right."""
    mean, variance = np.asarray(result.mean), np.asarray(result.variance)
    if mean.shape != expected.mean.shape or variance.shape != mean.shape:
        return f"shapes {mean.shape} and {variance.shape} in the place of {expected.mean.shape}"
    if not (np.abs(mean - expected.mean) <= 1e-5 * (1 + np.abs(expected.mean))).all():
        return f"mean {mean.tolist()} in the place of {expected.mean.tolist()}"
    if not variance.min(initial=0.0) > -1e-15:
        return f"variance {variance.tolist()}"
    if mode == "diagonal" and not expected.known:
        return "" if np.isfinite(variance).all() else "variance not finite"
    true = np.diagonal(expected.covariance)
    if _far(variance.reshape(-1), true, true):
        return f"variance {variance.tolist()} in the place of {true.reshape(mean.shape).tolist()}"
    return "" if result.covariance is None else _covariance(np.asarray(result.covariance), expected)


def _covariance(ours: np.ndarray, expected: Truth) -> str:
    """What is wrong with a covariance over the trailing axis."""
    *batch, size = expected.mean.shape
    places = np.arange(expected.mean.size).reshape(-1, size)
    true = expected.covariance[places[:, :, None], places[:, None, :]].reshape(*batch, size, size)
    variances = np.diagonal(expected.covariance).reshape(*batch, size)
    scale = np.sqrt(variances[..., :, None] * variances[..., None, :])
    if ours.shape != true.shape:
        return f"covariance of shape {ours.shape} in the place of {true.shape}"
    wrong = _far(ours, true, scale)
    return f"covariance {ours.tolist()} in the place of {true.tolist()}" if wrong else ""


def _far(ours: np.ndarray, true: np.ndarray, scale: np.ndarray) -> bool:
    """Whether anything is off by more than what is of second order."""
    allowed = RELATIVE * (scale + 0.1 * scale.max(initial=0.0)) + FLOOR
    return not bool((np.abs(ours - true) <= allowed).all())
