"""Indices, slices, updates and repetitions in JAX: moments move as the array does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from numpyro_moments import CovarianceDroppedWarning, Moments, UnsupportedMoments, propagate
from tests.numpyro.one_program import evaluated, propagate_traced

EXACT = {"rtol": 1e-10, "atol": 1e-10}
ROWS, COLUMNS = np.array([2, 0, 1, 1]), np.array([1, 0])
MASK = np.array([True, False, True])
CHOSEN = np.array([[0, 1], [2, 2], [1, 0], [0, 0]])

# Every result is made of components of h [4, 3], so the plain function of places says of which.
KEPT = {
    "slice": lambda h: h[1:, ::2],
    "integer": lambda h: h[2],
    "negative_integer": lambda h: h[-1, 1:],
    "column": lambda h: h[:, 1:2],
    "reversed": lambda h: h[::-1, ::-1],
    "rows": lambda h: h[ROWS],
    "rows_of_groups": lambda h: h[np.array([[0, 1], [3, 3]])],
    "columns": lambda h: h[..., COLUMNS],
    "mask": lambda h: h[:, MASK],
    "mask_of_rows": lambda h: h[np.array([True, False, False, True])],
    "take": lambda h: jnp.take(h, COLUMNS, axis=1),
    "take_clipped": lambda h: jnp.take(h, np.array([0, 9]), axis=0, mode="clip"),
    "take_along_axis": lambda h: jnp.take_along_axis(h, CHOSEN, axis=1),
    "index_of_each": lambda h: jax.vmap(lambda r, i: r[i])(h, CHOSEN),
    "window_of_each": lambda h: jax.vmap(lambda r, i: lax.dynamic_slice(r, (i,), (2,)))(
        h, np.array([0, 1, 0, 1])
    ),
    "roll": lambda h: jnp.roll(h, 1, -1),
    "tile": lambda h: jnp.tile(h, (2, 2)),
    "split": lambda h: jnp.split(h, [1], axis=1)[1],
    "concatenated_slices": lambda h: jnp.concatenate([h[:, 1:], h[:, :1]], 1),
    "new_axis": lambda h: h[:, None, :],
    "broadcast": lambda h: jnp.broadcast_to(h, (2, 4, 3)),
    "moved_features": lambda h: jnp.moveaxis(h, -1, 0)[COLUMNS].T,
    "dynamic_slice": lambda h: lax.dynamic_slice(h, (1, 9), (2, 2)),
    "set_of_rows": lambda h: jnp.zeros_like(h).at[np.array([3, 0, 2, 1])].set(h),
    "set_of_entries": lambda h: (
        jnp.zeros_like(h[:2, :1]).at[np.array([1, 0]), np.array([0, 0])].set(h[0, :2])
    ),
    "set_of_slice": lambda h: h.at[:, 1:].set(h[:, :2][:, ::-1]),
    "update_of_slice": lambda h: lax.dynamic_update_slice(h, h[:, 2:], (0, 0)),
}
TRACED = {
    "rows": lambda h, i: h[i],
    "row": lambda h, i: h[i[0]],
    "columns": lambda h, i: h[:, i],
    "minibatch": lambda h, i: lax.dynamic_slice_in_dim(h, i[1], 2),
    "take": lambda h, i: jnp.take(h, i, axis=0),
    "take_along_axis": lambda h, i: jnp.take_along_axis(h, jnp.broadcast_to(i, (4, 2)), 1),
}
DROPPED = {
    "rows_and_columns": lambda h: h[np.array([0, 1]), np.array([1, 0])],
    "diagonal": lambda h: jnp.diagonal(h),
    "chosen_rows": lambda h: jnp.take_along_axis(h, np.array([[1, 0, 2]]), axis=0),
}


pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def moments() -> Moments:
    generator = np.random.default_rng(0)
    factor = generator.normal(size=(4, 3, 3))
    mean = jnp.asarray(generator.normal(size=(4, 3)))
    return Moments(mean, covariance=jnp.asarray(factor @ np.swapaxes(factor, -1, -2)))


def placed(*functions):
    """Of which components of h the results are made."""
    places = jnp.arange(12).reshape(4, 3)
    return [np.asarray(part) for part in evaluated(lambda h: [f(h) for f in functions], places)]


def check(result: Moments, given: Moments, places: np.ndarray, name: str = "") -> None:
    for part in ("mean", "variance"):
        expected = np.asarray(getattr(given, part)).ravel()[places]
        np.testing.assert_allclose(getattr(result, part), expected, **EXACT, err_msg=name)
    if result.covariance is not None:
        joint = np.zeros((4, 3, 4, 3))
        joint[range(4), :, range(4), :] = given.covariance
        expected = joint.reshape(12, 12)[places[..., :, None], places[..., None, :]]
        np.testing.assert_allclose(result.covariance, expected, **EXACT, err_msg=name)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("names", "mode"),
    [([*KEPT][::4], "full"), ([*KEPT], "full"), ([*KEPT], "diagonal")],
    ids=["few-full", "full", "diagonal"],
)
def test_moments_move_as_the_array_does(names, mode):
    """By one program: every row by itself takes longer to compile."""

    def program(given):
        return {name: propagate(KEPT[name], given, covariance=mode) for name in names}

    results, places = evaluated(program, moments()), placed(*(KEPT[name] for name in names))
    for name, expected in zip(names, places, strict=True):
        check(results[name], moments(), expected, name)


@pytest.mark.filterwarnings("error")
def test_indices_that_are_known_at_run_time_only():
    given, places = moments(), jnp.arange(12).reshape(4, 3)

    def moved(indices):
        functions = {name: lambda h, f=f: f(h, indices) for name, f in TRACED.items()}
        return {
            n: (propagate(f, given, covariance="full"), f(places)) for n, f in functions.items()
        }

    for name, (result, expected) in evaluated(moved, jnp.array([2, 0])).items():
        check(result, given, np.asarray(expected), name)


@pytest.mark.parametrize("name", DROPPED)
def test_a_warning_where_features_and_batch_mix(name):
    given = moments()
    with pytest.warns(CovarianceDroppedWarning, match="input 0"):
        result = propagate(DROPPED[name], given, covariance="full")
    check(Moments(result.mean, variance=result.variance), given, *placed(DROPPED[name]))


def test_out_of_bounds_is_filled():
    given = moments()
    take = lambda h: jnp.take(h, np.array([0, 9]), axis=0, fill_value=7.0)  # noqa: E731
    result = propagate(take, given)
    np.testing.assert_allclose(result.mean, take(given.mean), **EXACT)
    np.testing.assert_allclose(result.variance[1], 0.0, **EXACT)


def test_additions_at_places():
    given = moments()
    function = lambda h: h.at[:, COLUMNS].add(h[:, :2] * 2).at[0].add(1.0)  # noqa: E731
    result = propagate_traced(function, given, covariance="full")
    matrix = np.eye(3)
    matrix[COLUMNS, [0, 1]] += 2
    np.testing.assert_allclose(result.mean, evaluated(function, given.mean), **EXACT)
    np.testing.assert_allclose(result.covariance, matrix @ given.covariance @ matrix.T, **EXACT)


REFUSED = {
    "sort": lambda h: jnp.sort(h),
    "top_k": lambda h: lax.top_k(h, 2)[0],
    "argmax": lambda h: h.argmax(-1),
    "cumprod": lambda h: jnp.cumprod(h, -1),
    "gather": lambda h: jnp.arange(3.0)[h.astype(int)[:, 0]],
    "scatter-add": lambda h: jax.ops.segment_sum(h, np.array([0, 1, 1, 0]), 2),
    "reduce_max": lambda h: jnp.max(jnp.tile(h, 22), -1),
    "reduce_sum": lambda h: jnp.sum(h @ jnp.ones((3, 2)) + h[::-1, :2]),
    "dot_general": lambda h: h @ h.T,
}


@pytest.mark.filterwarnings("ignore::moment_calculus.errors.DependenceWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_site_and_remedy(name):
    with pytest.raises(UnsupportedMoments, match="input 0") as refusal:
        propagate(REFUSED[name], moments(), covariance="full")
    assert "remedy: " in str(refusal.value)
    assert "torch" not in str(refusal.value)
