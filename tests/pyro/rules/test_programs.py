"""Every program has exact moments, or warns, or refuses."""

import warnings

import pytest
import torch
from torch.nn.functional import linear

from pyro_moments import (
    CovarianceDroppedWarning,
    DependenceWarning,
    Moments,
    UnsupportedMoments,
    propagate,
)
from tests.cases import programs, spellings
from tests.oracles import quadrature as oracles

MODES = ("full", "diagonal")
PROGRAMS = programs.PROGRAMS + spellings.SPELLINGS
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def random_inputs(letters: str) -> list[Moments]:
    generator = torch.Generator().manual_seed(1)
    inputs = []
    for letter in letters:
        shape = programs.SHAPES[letter]
        mean = torch.randn(shape, generator=generator, dtype=torch.float64)
        if letter == "X":
            factor = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64)
            inputs.append(Moments(mean, covariance=factor @ factor.mT))
        else:
            spread = torch.rand(shape, generator=generator, dtype=torch.float64)
            inputs.append(Moments(mean, variance=0.3 + spread))
    return inputs


def draws(inputs: list[Moments], nodes: int = 3) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The inputs on a tensor Gauss–Hermite grid [n, ...], with its weights [n]."""
    sizes = [moments.mean.numel() for moments in inputs]
    grid, weights = oracles.hermite_grid(nodes, sum(sizes))
    shares = torch.as_tensor(grid).split(sizes, dim=-1)
    return [_draw(m, z) for m, z in zip(inputs, shares, strict=True)], torch.as_tensor(weights)


def _draw(moments: Moments, z: torch.Tensor) -> torch.Tensor:
    z = z.reshape(-1, *moments.mean.shape)
    if moments.covariance is None:
        return moments.mean + moments.variance.sqrt() * z
    factor = torch.linalg.cholesky(moments.covariance)
    return moments.mean + (factor @ z[..., None])[..., 0]


def exact_moments(function, inputs: list[Moments], nodes: int = 3) -> dict[str, torch.Tensor]:
    points, weights = draws(inputs, nodes)
    samples = torch.vmap(function)(*points)
    moments = oracles.sample_moments(
        samples.numpy(), weights.numpy(), -1 if samples.ndim > 1 else None
    )
    return {name: torch.as_tensor(part) for name, part in moments.items()}


def run(function, inputs: list[Moments], mode: str):
    """The result, and the warnings of the library."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = propagate(function, *inputs, covariance=mode)
    ours = (DependenceWarning, CovarianceDroppedWarning)
    return result, [w for w in caught if issubclass(w.category, ours)]


def on_data(program: programs.Program, data: torch.Tensor):
    if program.data:
        return lambda *inputs: program.function(data, *inputs)
    return program.function


def check_program(program: programs.Program, mode: str) -> None:
    owed = getattr(program, mode)
    function, inputs = on_data(program, programs.x), random_inputs(program.inputs)
    if owed == "refused":
        with pytest.raises(UnsupportedMoments):
            run(function, inputs, mode)
        return
    result, caught = run(function, inputs, mode)
    true = exact_moments(function, inputs)
    if owed != "any":
        torch.testing.assert_close(result.mean, true["mean"], **EXACT)
    assert bool(caught) == (owed == "warning"), [str(w.message) for w in caught]
    assert all(w.filename in (programs.__file__, spellings.__file__) for w in caught), (
        "the warning misses the user's line"
    )
    if owed == "exact":
        torch.testing.assert_close(result.variance, true["variance"], **EXACT)
        if result.covariance is not None:
            torch.testing.assert_close(result.covariance, true["covariance"], **EXACT)
    assert (result.variance > -1e-12).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_program(program, mode):
    check_program(program, mode)


EXACT_PROGRAMS = [p for p in PROGRAMS if p.data and p.full == "exact"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", EXACT_PROGRAMS, ids=lambda p: p.name)
def test_batch_invariance(program, mode):
    """An element of the batch has the moments that it has alone."""
    if getattr(program, mode) in ("warning", "refused"):
        return
    inputs = random_inputs(program.inputs)
    together, _ = run(on_data(program, programs.x), inputs, mode)
    features_of_elements = together.mean.ndim > 1  # else the batch itself may be the feature axis
    for i in range(2):
        alone, _ = run(on_data(program, programs.x[i : i + 1]), inputs, mode)
        for name in ("mean", "variance", "covariance"):
            part, whole = getattr(alone, name), getattr(together, name)
            if name != "covariance" or (features_of_elements and None not in (part, whole)):
                torch.testing.assert_close(part[0], whole[i], **EXACT)


ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "exp": torch.exp}
ONE_ACTIVATION = {
    "with_its_argument": lambda f, h: torch.cat([f(h), h], -1),
    "residual": lambda f, h: h + f(h),
    "residual_of_map": lambda f, h: h + f(linear(h, programs.A)),
    "negative_residual_of_map": lambda f, h: h - f(linear(h, programs.A)),
    "map_of_activation": lambda f, h: linear(f(h), programs.A) - 2 * h,
    "centred": lambda f, h: f(h) - f(h)[..., :1],
    "times_itself": lambda f, h: f(h) * f(h),
    "times_its_argument": lambda f, h: h * f(h) + f(h),
    "with_another_function": lambda f, h: torch.sigmoid(h) - 2 * f(h),
    "moved_fusion": lambda f, h: (f(h) * torch.sigmoid(h))[None, ..., 1:].squeeze(0) + h[..., :1],
    "recomputed": lambda f, h: 2 * f(h) - f(h),
    "affine_slice": lambda f, h: (f(h) * programs.x[0] + 1)[..., 1:] + h[..., :1],
    "chain_slice": lambda f, h: f(f(h) * programs.x[0] - 0.5)[..., 1:],
    "slices": lambda f, h: f(h)[..., :1] - f(h)[..., 1:],
    "reversed": lambda f, h: f(h)[..., [1, 0]] + h,
    "leading_axis": lambda f, h: (f(h)[None] * programs.x[0])[0],
}


@pytest.fixture(scope="module")
def plane() -> tuple[torch.Tensor, torch.Tensor]:
    """A fine grid over two standard normal variables; kinks cost it four digits."""
    z = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    weights = torch.softmax(-0.5 * z**2, 0)
    return torch.cartesian_prod(z, z), torch.outer(weights, weights).reshape(-1)


@pytest.mark.parametrize("name", ONE_ACTIVATION)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_one_activation(name, activation, plane):
    """Means, variances and, through Stein's lemma, covariances of one activation are exact."""
    f, program = ACTIVATIONS[activation], ONE_ACTIVATION[name]
    factor = torch.tensor([[0.7, 0.0], [-0.4, 0.5]], dtype=torch.float64)
    h = Moments(torch.tensor([0.3, -0.2], dtype=torch.float64), covariance=factor @ factor.mT)
    result, caught = run(lambda h: program(f, h), [h], "full")
    points, weights = plane
    samples = program(f, h.mean + points @ factor.mT)
    true = oracles.sample_moments(samples.numpy(), weights.numpy(), -1)
    assert not caught
    error = 1e-4 if activation == "relu" or "chain" in name else 1e-8
    for part, expected in true.items():
        expected = torch.as_tensor(expected)
        torch.testing.assert_close(getattr(result, part), expected, rtol=error, atol=error)
