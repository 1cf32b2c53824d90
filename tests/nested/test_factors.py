"""Factors of sparse precisions against NumPy's dense inverses."""

import numpy as np
import pytest

from moment_inference.nested.factors import factorise
from moment_inference.nested.factors.bordered import BorderedFactors
from moment_inference.nested.factors.dense import DenseFactors
from moment_inference.nested.factors.ordering import best_ordering, bordered_orderings
from moment_inference.nested.factors.places import Places
from moment_inference.nested.sparse import Sparse


def dense_rows(d=6):
    return [range(d)] * 9, d


def arrow(groups=30, border=2):
    return [[*range(border), border + group] for group in range(groups)], border + groups


def pairs(groups=20):
    return [[0, 1 + 2 * group, 2 + 2 * group] for group in range(groups)], 1 + 2 * groups


def chain(length=40):
    return [[0, time, time + 1] for time in range(1, length)], 1 + length


def second_differences(length=30):
    return [[time, time + 1, time + 2] for time in range(length - 2)], length


def grid(side=6):
    at = lambda row, column: row * side + column  # noqa: E731
    across = [[at(i, j), at(i, j + 1)] for i in range(side) for j in range(side - 1)]
    down = [[at(i, j), at(i + 1, j)] for i in range(side - 1) for j in range(side)]
    return across + down, side**2


def wide_grid():
    rows, d = grid(11)
    return [[*row, d] for row in rows], d + 1


def groups_of_many_sizes():
    """Chains of 1 to 7 coordinates, stars of 4, and two columns that all rows have."""
    rows, first = [], 2
    for length in [1, 1, 1, 2, 3, 3, 7]:
        rows += [[0, 1, first + max(t - 1, 0), first + t] for t in range(length)]
        first += length
    for _ in range(3):
        rows += [[0, first, first + leaf] for leaf in range(1, 4)]
        first += 4
    return rows, first


def smooth_and_groups(columns=30, groups=40):
    every = range(columns)
    return [[*every, columns + k % groups] for k in range(2 * groups)], columns + groups


CASES = dict(
    dense=dense_rows(),
    arrow=arrow(),
    independent=arrow(border=0),
    pairs=pairs(),
    chain=chain(),
    second_differences=second_differences(),
    grid=grid(),
    wide_grid=wide_grid(),
    many_sizes=groups_of_many_sizes(),
    smooth_and_groups=smooth_and_groups(),
)


def matrices(case, points, seed=0):
    """A with an empty row, and M = AᵀA + positive diagonal, in an order of no use."""
    rows, d = CASES[case]
    generator = np.random.default_rng(seed)
    mixed = generator.permutation(d)
    entries = {(row, mixed[column]) for row, columns in enumerate(rows) for column in columns}
    where = np.array(sorted(entries)).T
    values = generator.normal(size=(points, where.shape[1]))
    matrix = Sparse.of(*where, values, (len(rows) + 1, d))
    prior = Sparse.of(*np.diag_indices(d), 0.1 + generator.random((points, d)), (d, d))
    return matrix, matrix.gram(1 + generator.random((points, len(rows) + 1))) + prior


def every_factorisation(precision):
    """The factors by each border that is tried, and dense."""
    orderings = bordered_orderings(precision.pattern)
    return [DenseFactors(precision)] + [
        BorderedFactors(precision, Places(ordering)) for ordering in orderings
    ]


class Inverse:
    """The dense inverse, and its comparison with factors."""

    def __init__(self, case, points):
        self.matrix, self.precision = matrices(case, points)
        self.covariance = np.linalg.inv(self.precision.dense())
        self.factors = every_factorisation(self.precision)


@pytest.fixture(
    scope="module", params=[(case, points) for case in CASES for points in (1, 3)], ids=str
)
def inverse(request):
    return Inverse(*request.param)


def close(result, expected):
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


def test_determinants(inverse):
    expected = np.linalg.slogdet(inverse.precision.dense())[1]
    for factors in inverse.factors:
        assert factors.is_definite.all()
        close(factors.log_determinant, expected)


def test_solutions(inverse):
    right = np.random.default_rng(1).normal(size=(len(inverse.covariance), inverse.matrix.shape[1]))
    many = np.stack([right, 2 * right, right[:, ::-1]], 2)
    for factors in inverse.factors:
        close(factors.solve(right), np.einsum("gij,gj->gi", inverse.covariance, right))
        close(factors.solve(many), inverse.covariance @ many)


def test_variances(inverse):
    dense = inverse.matrix.dense()
    expected = np.einsum("gni,gij,gnj->gn", dense, inverse.covariance, dense)
    for factors in inverse.factors:
        close(factors.variances(inverse.matrix), expected)
        close(factors.marginal_variances(), np.einsum("gii->gi", inverse.covariance))


def test_columns(inverse):
    dense = inverse.matrix.dense()
    expected = dense @ inverse.covariance @ np.swapaxes(dense, 1, 2)
    for factors in inverse.factors:
        close(factors.columns(inverse.matrix, 2, 5), expected[:, :, 2:5])


def test_draws(inverse):
    points, d = inverse.covariance.shape[:2]
    noise = np.broadcast_to(np.eye(d), (points, d, d))
    for factors in inverse.factors:
        root = factors.draws(noise)  # its product with its transpose is the covariance
        close(root @ np.swapaxes(root, 1, 2), inverse.covariance)


def test_covariances_of_blocks(inverse):
    entries = inverse.precision.pattern
    indices = np.stack([entries.rows, entries.columns], 1)[::3]
    expected = inverse.covariance[:, indices[:, :, None], indices[:, None, :]]
    for factors in inverse.factors:
        close(factors.block_covariances(indices), expected)


@pytest.mark.parametrize("case", ["arrow", "pairs", "chain", "wide_grid"])
def test_an_indefinite_matrix_spoils_its_own_point_only(case):
    _, precision = matrices(case, 3)
    precision.values[1, precision.pattern.starts[-2] :] -= 1e3
    precision.values[1, precision.rows == precision.columns] -= 10
    for factors in every_factorisation(precision):
        assert factors.is_definite.tolist() == [True, False, True]
        assert np.isnan(factors.log_determinant).tolist() == [False, True, False]
        expected = np.einsum("gii->gi", np.linalg.inv(precision.dense()[[0, 2]]))
        variances = factors.marginal_variances()
        close(variances[[0, 2]], expected)
        assert np.isnan(variances[1]).all()


def test_a_matrix_of_nan_is_not_definite():
    _, precision = matrices("chain", 2)
    precision.values[1] = np.nan
    for factors in every_factorisation(precision):
        assert factors.is_definite.tolist() == [True, False]


def test_entries_that_the_precision_does_not_couple_are_refused():
    _, precision = matrices("chain", 1)
    ordering = next(iter(bordered_orderings(precision.pattern)))
    factors = BorderedFactors(precision, Places(ordering))
    far = ordering.groups[0].coordinates[np.argsort(ordering.groups[0].slots)[[0, -1]]]
    with pytest.raises(ValueError, match="does not couple"):
        factors.block_covariances(far[None])


def large(rows, d):
    """The precision of a large pattern at one point, all entries equal but the diagonal."""
    entries = [(row, column) for row, columns in enumerate(rows) for column in columns]
    where = np.array(entries).T
    matrix = Sparse.of(*where, np.ones((1, where.shape[1])), (len(rows), d))
    return matrix, matrix.gram(np.ones((1, len(rows)))) + Sparse.of(
        *np.diag_indices(d), np.ones((1, d)), (d, d)
    )


@pytest.mark.parametrize(
    ("pattern", "border", "blocks"),
    [
        (arrow(3000, 3), 3, [1]),
        (pairs(1500), 1, [1]),
        (chain(2000), 1, [1]),
        (second_differences(2000), 0, [2]),
        (grid(30), 0, [32]),
    ],
)
def test_the_structure_is_found(pattern, border, blocks):
    matrix, precision = large(*pattern)
    ordering = best_ordering(precision.pattern)
    assert len(ordering.border) == border
    assert [group.size for group in ordering.groups] == blocks
    factors = factorise(precision)
    right = np.random.default_rng(0).normal(size=(1, matrix.shape[1]))
    close(precision.times(factors.solve(right)), right)


def test_small_and_dense_ones_are_dense():
    assert isinstance(factorise(matrices("dense", 2)[1]), DenseFactors)
