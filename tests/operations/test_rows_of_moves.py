"""The axis of rows after a move is where the rows' numbers are."""

import numpy as np
import pytest

from moment_calculus.operations.shapes.rows import array_of_rows, axis_of_rows

SHAPE = (3, 2, 4)
# By name: a move, and the new axes of the old ones -3, -2 and -1; None where they are mixed.
MOVES = {
    "permuted": (lambda a: a.transpose(2, 0, 1), (-2, -1, -3)),
    "merged": (lambda a: a.reshape(3, 8), (-2, None, None)),
    "split": (lambda a: a.reshape(3, 2, 2, 2), (-4, -3, None)),
    "mixed": (lambda a: a.reshape(6, 4), (None, None, -1)),
    "other sizes": (lambda a: a.reshape(2, 3, 4), (None, None, -1)),
    "repeated": (lambda a: np.broadcast_to(a[:, None], (3, 5, 2, 4)), (-4, -2, -1)),
    "squeezed": (lambda a: a[:, None, 0], (-3, None, -1)),
    "left out": (lambda a: a[1:, :, ::2], (None, -2, None)),
    "reversed": (lambda a: a[::-1], (None, -2, -1)),
    "reordered": (lambda a: a[[2, 0, 1], 0, 0], (None, None, None)),
    "windows": (lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 0), (None, -3, -2)),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("axis", [-3, -2, -1])
def test_strides_tell_where_a_move_takes_the_rows(name, axis):
    move, expected = MOVES[name]
    moved = move(array_of_rows(SHAPE, axis))
    found = axis_of_rows(moved.shape, moved.strides, SHAPE[axis])
    assert found == expected[axis]
    if found is not None:
        numbers = np.arange(SHAPE[axis]).reshape([-1, *[1] * (-1 - axis)])
        rows = move(np.broadcast_to(numbers, SHAPE))
        kept = np.moveaxis(rows, found, -1)
        np.testing.assert_array_equal(kept, np.broadcast_to(np.arange(SHAPE[axis]), kept.shape))
