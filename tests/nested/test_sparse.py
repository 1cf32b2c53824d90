"""Batched sparse matrices against NumPy's dense products."""

import numpy as np
import pytest

from moment_inference.nested.sparse import Entries, Pattern, Sparse
from moment_inference.nested.sparse.grams import PairGram, SplitGram, gram_of


def random_matrix(points=3, n=7, d=5, share=0.4, seed=0):
    """A matrix whose row 2 is empty."""
    generator = np.random.default_rng(seed)
    is_present = generator.random((n, d)) < share
    is_present[min(2, n - 1)] = False
    rows, columns = np.nonzero(is_present)
    return Sparse.of(rows, columns, generator.normal(size=(points, len(rows))), (n, d))


SHARES = pytest.mark.parametrize("share", [0.2, 0.4, 1.0])
POINTS = pytest.mark.parametrize("points", [1, 3])


def test_entries_in_any_order_and_repeated_are_added():
    rows, columns = np.array([2, 0, 2, 1]), np.array([1, 0, 1, 2])
    matrix = Sparse.of(rows, columns, np.array([[1.0, 2.0, 3.0, 4.0]]), (3, 3))
    np.testing.assert_array_equal(matrix.dense()[0], [[2, 0, 0], [0, 0, 4], [0, 4, 0]])


def test_entries_in_any_order_keep_their_values():
    entries = Entries(np.array([1, 0]), np.array([0, 1]), (2, 2))
    matrix = Sparse.of_entries(entries, np.array([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(matrix.dense()[1], [[0, 4], [3, 0]])


def test_an_entry_outside_is_refused():
    with pytest.raises(ValueError, match="column of an entry is outside of the matrix's 2"):
        Sparse.of(np.array([0]), np.array([2]), np.ones((1, 1)), (3, 2))


def test_equal_patterns_are_one_object():
    one, other = random_matrix().pattern, random_matrix().pattern
    assert one is other


@SHARES
@POINTS
def test_products(share, points):
    matrix, generator = random_matrix(points, share=share), np.random.default_rng(1)
    right, left = generator.normal(size=(3, 5)), generator.normal(size=(3, 7, 2))
    expected = np.einsum("gnd,gd->gn", np.broadcast_to(matrix.dense(), (3, 7, 5)), right)
    np.testing.assert_allclose(matrix.times(right), expected, atol=1e-14)
    expected = np.swapaxes(matrix.dense(), 1, 2) @ left
    np.testing.assert_allclose(matrix.transposed_times(left), expected, atol=1e-14)


def test_fewer_points_follow_more():
    matrix, right = random_matrix(), np.random.default_rng(1).normal(size=(3, 5))
    everywhere = matrix.times(right)
    np.testing.assert_array_equal(matrix.take([2]).times(right[[2]]), everywhere[[2]])


@SHARES
@POINTS
def test_gram(share, points):
    matrix = random_matrix(points, share=share)
    weights = np.random.default_rng(1).random((3, 7))
    expected = np.swapaxes(matrix.dense(), 1, 2) @ (matrix.dense() * weights[:, :, None])
    gram = matrix.gram(weights)
    np.testing.assert_allclose(gram.dense(), expected, atol=1e-14)
    np.testing.assert_array_equal(gram.dense(), np.swapaxes(gram.dense(), 1, 2))


@SHARES
@POINTS
@pytest.mark.parametrize("columns", [[0], [1, 3], [0, 1, 2, 3, 4]], ids=str)
def test_products_with_dense_columns_are_those_by_pairs(share, points, columns):
    matrix, generator = random_matrix(points, share=share), np.random.default_rng(1)
    weights, symmetric = generator.random((3, 7)), generator.normal(size=(3, 5, 5))
    symmetric += np.swapaxes(symmetric, 1, 2)
    split = SplitGram(matrix.pattern, np.isin(np.arange(5), columns))
    pairs = PairGram(matrix.pattern)
    assert split.pattern is pairs.pattern
    np.testing.assert_allclose(
        split.weighted(matrix.values, weights), pairs.weighted(matrix.values, weights), atol=1e-14
    )
    forms = [
        gram.quadratic(matrix.values, symmetric.reshape(3, -1)[:, gram.support.keys])
        for gram in (split, pairs)
    ]
    dense = np.broadcast_to(matrix.dense(), (3, 7, 5))
    expected = np.einsum("gni,gij,gnj->gn", dense, symmetric, dense)
    np.testing.assert_allclose(forms, [expected] * 2, atol=1e-13)


def test_columns_with_many_entries_have_dense_products():
    rows, columns = np.divmod(np.arange(500 * 20), 20)
    effects = np.stack([np.arange(500), 20 + np.arange(500) % 7])
    where = np.append(np.stack([rows, columns]), effects, axis=1)
    matrix = Sparse.of(*where, np.ones((1, where.shape[1])), (500, 27))
    gram = gram_of(matrix.pattern)
    assert isinstance(gram, SplitGram)
    np.testing.assert_allclose(matrix.gram(np.ones((2, 500))).dense()[:, :20, :20], 500)
    np.testing.assert_allclose(
        matrix.gram(np.ones((2, 500))).dense()[0, 20], [*[72] * 21, *[0] * 6]
    )


def test_a_sum_has_the_union_of_patterns():
    one, other = random_matrix(seed=0), random_matrix(1, seed=1)
    np.testing.assert_allclose((one + other).dense(), one.dense() + other.dense(), atol=1e-15)
    assert (one + other).pattern is (one + other).pattern
    whole = random_matrix(share=1.1, seed=2)
    for first, second in ((one, whole), (whole, one), (one, one)):
        np.testing.assert_allclose((first + second).dense(), first.dense() + second.dense())


def test_sums_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="have no sum"):
        random_matrix(n=7) + random_matrix(n=6)


def test_rows_become_columns():
    matrix = random_matrix()
    expected = np.swapaxes(matrix.dense()[:, 1:4], 1, 2)
    np.testing.assert_array_equal(matrix.dense_rows(1, 4), expected)


def test_points_are_taken():
    matrix = random_matrix()
    np.testing.assert_array_equal(matrix.take([2, 0]).dense(), matrix.dense()[[2, 0]])
    shared = random_matrix(1)
    assert shared.take([2, 0]) is shared


def test_no_entries():
    nothing = Sparse(Pattern.of(np.array([], int), np.array([], int), (3, 2)), np.zeros((2, 0)))
    assert nothing.times(np.ones((2, 2))).tolist() == [[0, 0, 0]] * 2
    assert nothing.gram(np.ones((2, 3))).dense().tolist() == [[[0, 0]] * 2] * 2
