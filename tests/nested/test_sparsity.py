"""Where large matrices have entries, by fewer products than they have columns."""

import numpy as np
import pytest
from scipy.sparse import block_array, csr_array, diags_array, eye_array, hstack

from moment_inference.nested.given.sparsity import pattern_of

SIZE, ROWS = 700, 3


def design(point):
    """Two covariates, and an effect of each group of rows."""
    count = SIZE * ROWS
    covariates = csr_array(np.random.default_rng(point).normal(size=(count, 2)))
    places = np.arange(count), np.repeat(np.arange(SIZE), ROWS)
    return hstack([covariates, csr_array((np.full(count, 1.3 + point), places))]).tocsr()


def walk(point):
    """The precision of a random walk, whose differences cancel in sums."""
    beside = -np.ones(SIZE - 1)
    return diags_array([np.full(SIZE, 2.0 + point), beside, beside], offsets=[0, 1, -1]).tocsr()


def hierarchy(point):
    """The precision of effects about a mean: one row is dense."""
    own, column = 2.0 + point, -(2.0 + point) * np.ones((SIZE, 1))
    mean = csr_array([[SIZE * own + 1]])
    return block_array([[mean, column.T], [column, own * eye_array(SIZE)]]).tocsr()


def sums(point):
    """Cumulative sums: most rows are dense."""
    return csr_array(np.tril(np.full((SIZE, SIZE), 1.0 + point)))


@pytest.mark.parametrize(
    ("make", "most"), [(design, 500), (walk, 400), (hierarchy, 1200), (sums, 4 * SIZE)]
)
def test_all_entries_are_found(make, most):
    matrices, asked = [make(0), make(1)], []

    def products(points, directions):
        asked.append(len(directions))
        return np.stack([(matrix @ directions.T).T for matrix in matrices])

    found = pattern_of(products, np.zeros((2, 1)), matrices[0].shape)
    there = (abs(matrices[0]) + abs(matrices[1])).tocoo()
    keys = np.sort(there.row.astype(np.int64) * there.shape[1] + there.col)
    np.testing.assert_array_equal(found.keys, keys)
    assert sum(asked) <= most
