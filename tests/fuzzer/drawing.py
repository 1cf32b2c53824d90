"""How an operation draws its arguments: from the shapes of its operands, None where none fit.

A drawn number or tuple is written into the spelling as it is; an array becomes a constant of the
program. Numbers have two digits, so that the printed source is the program.
"""

from typing import Any

import numpy as np

Shape = tuple[int, ...]
Arguments = dict[str, Any] | None


def array(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers of two digits, away from zero."""
    size = rng.uniform(0.3, 1.5, size=shape) * rng.choice([-1.0, 1.0], size=shape)
    return np.asarray(np.round(size, 2))


def pick(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def nothing(rng: np.random.Generator, *_: Shape) -> Arguments:
    return {}


def matrix_only(rng: np.random.Generator, shape: Shape) -> Arguments:
    return {} if len(shape) == 2 else None


def number(rng: np.random.Generator, *_: Shape) -> Arguments:
    return {"number": float(array(rng, ()))}


def rate(rng: np.random.Generator, *_: Shape) -> Arguments:
    """The probability to drop."""
    return {"rate": float(np.round(rng.uniform(0.1, 0.7), 2))}


def bounds(rng: np.random.Generator, shape: Shape) -> Arguments:
    low = float(np.round(rng.uniform(-1.5, 0.0), 2))
    return {"low": low, "high": round(low + 1.0, 2)}


def axis(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Any axis, counted from the front or from the back."""
    return {"axis": int(rng.integers(-len(shape), len(shape)))} if shape else None


def axis_and_keep(rng: np.random.Generator, shape: Shape) -> Arguments:
    drawn = axis(rng, shape)
    return None if drawn is None else {**drawn, "keep": bool(rng.integers(2))}


def trailing(rng: np.random.Generator, shape: Shape) -> Arguments:
    """A trailing axis that can be normalised."""
    return {"size": shape[-1]} if shape and shape[-1] > 2 else None


def constant(rng: np.random.Generator, shape: Shape) -> Arguments:
    """An array that broadcasts with the operand, in either direction."""
    other = [1 if rng.random() < 0.2 else size for size in shape]
    other = other[int(rng.integers(len(other) + 1)) :] if rng.random() < 0.3 else other
    if len(shape) < 3 and rng.random() < 0.1:
        other = [2, *shape]
    return {"c": array(rng, tuple(other))}


def mask(rng: np.random.Generator, shape: Shape, *others: Shape) -> Arguments:
    """A certain condition, and a number for where it does not hold."""
    drawn, like = number(rng), broadcast(shape, *others)
    if like is None:
        return None
    drawn["c"] = np.asarray(rng.random(like[-1:] if rng.random() < 0.3 else like) < 0.5)
    return drawn


def broadcast(*shapes: Shape) -> Shape | None:
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        return None


def together(rng: np.random.Generator, left: Shape, right: Shape) -> Arguments:
    """Operands that broadcast."""
    return None if broadcast(left, right) is None else {}


def alike(rng: np.random.Generator, left: Shape, right: Shape) -> Arguments:
    """Operands of one shape, and a place for a new axis."""
    return {"axis": int(rng.integers(-len(left) - 1, len(left) + 1))} if left == right else None


def joinable(rng: np.random.Generator, left: Shape, right: Shape) -> Arguments:
    """Operands that can be concatenated along an axis."""
    if len(left) != len(right):
        return None
    rank = len(left)
    places = [place for place in range(rank) if _without(left, place) == _without(right, place)]
    if not places:
        return None
    return {"axis": pick(rng, places) - (rank if rng.integers(2) else 0)}


def _without(shape: Shape, place: int) -> Shape:
    return shape[:place] + shape[place + 1 :]


def vectors(rng: np.random.Generator, left: Shape, right: Shape) -> Arguments:
    return {} if len(left) == len(right) == 1 else None


def map_after(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Certain weights [out, in] of the trailing axis."""
    return {"c": array(rng, (int(rng.integers(1, 4)), shape[-1]))} if shape else None


def map_before(rng: np.random.Generator, shape: Shape) -> Arguments:
    """A certain matrix in front of columns."""
    if not shape:
        return None
    size = shape[-2] if len(shape) > 1 else shape[0]
    return {"c": array(rng, (int(rng.integers(1, 4)), size))}


def weights(rng: np.random.Generator, inputs: Shape, shape: Shape) -> Arguments:
    """Operands x [..., in] and weights [out, in]."""
    return {} if inputs and len(shape) == 2 and shape[1] == inputs[-1] else None


def product(rng: np.random.Generator, left: Shape, right: Shape) -> Arguments:
    """Operands of ``@``."""
    if not left or not right:
        return None
    inner = right[-2] if len(right) > 1 else right[0]
    return {} if left[-1] == inner and broadcast(left[:-2], right[:-2]) is not None else None


def two_batches(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Two batches of inputs of weights [out, in]."""
    if len(shape) != 2:
        return None
    rows = int(rng.integers(1, 4)), shape[1]
    return {"c": array(rng, rows), "d": array(rng, rows)}


def columns(rng: np.random.Generator, shape: Shape) -> Arguments:
    """A right operand of ``@``, matrix or vector."""
    more = (int(rng.integers(1, 4)),) if len(shape) > 1 or rng.integers(2) else ()
    return {"c": array(rng, (shape[-1], *more))} if shape else None


def other_vector(rng: np.random.Generator, shape: Shape) -> Arguments:
    return {"c": array(rng, (int(rng.integers(1, 4)),))} if len(shape) == 1 else None


def permutation(rng: np.random.Generator, shape: Shape) -> Arguments:
    return {"axes": tuple(map(int, rng.permutation(len(shape))))} if len(shape) > 1 else None


def two_axes(rng: np.random.Generator, shape: Shape) -> Arguments:
    if len(shape) < 2:
        return None
    first, second = map(int, rng.choice(len(shape), size=2, replace=False))
    return {"first": first - len(shape), "second": second}


def new_shape(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Two axes as one, an axis as two, one axis of size one more, or all as one."""
    options = [(-1,), (*shape, 1), (1, *shape)]
    for place, size in enumerate(shape):
        if place:
            options.append((*shape[: place - 1], shape[place - 1] * size, *shape[place + 1 :]))
        if size == 4:
            options.append((*shape[:place], 2, 2, *shape[place + 1 :]))
    return {"shape": tuple(map(int, pick(rng, [o for o in options if len(o) < 4])))}


def unit_axis(rng: np.random.Generator, shape: Shape) -> Arguments:
    """An axis of size one."""
    places = [place - len(shape) * int(rng.integers(2)) for place, s in enumerate(shape) if s == 1]
    return {"axis": pick(rng, places)} if places else None


def place_of_axis(rng: np.random.Generator, shape: Shape) -> Arguments:
    if len(shape) > 2:
        return None
    return {"axis": int(rng.integers(-len(shape) - 1, len(shape) + 1))}


def expansion(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Axes of size one repeated, or a new leading axis."""
    wider = tuple(2 if size == 1 and rng.random() < 0.7 else size for size in shape)
    if len(shape) < 3 and (wider == shape or rng.random() < 0.3):
        wider = (2, *wider)
    return {"shape": wider} if wider != shape else None


def roll(rng: np.random.Generator, shape: Shape) -> Arguments:
    drawn = axis(rng, shape)
    return None if drawn is None else {**drawn, "by": int(rng.integers(-2, 3))}


def whole_roll(rng: np.random.Generator, shape: Shape) -> Arguments:
    return {"by": int(rng.integers(-2, 3))} if shape else None


def index(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Integers, slices and steps, maybe after an ellipsis."""
    if not shape:
        return None
    count = int(rng.integers(1, len(shape) + 1))
    from_back = bool(rng.integers(2))
    sizes = shape[-count:] if from_back else shape[:count]
    parts = [_one_index(rng, size) for size in sizes]
    return {"index": ", ".join(["...", *parts] if from_back else parts)}


def _one_index(rng: np.random.Generator, size: int) -> str:
    options = [":", str(int(rng.integers(-size, size)))]
    options += [f"{int(rng.integers(size))}:", "::2"]
    if size > 1:
        options += [f":{int(rng.integers(1, size))}", ":-1"]
    return pick(rng, options)


def index_array(rng: np.random.Generator, shape: Shape) -> Arguments:
    """An array of indices for one axis."""
    if not shape:
        return None
    place = int(rng.integers(len(shape)))
    drawn = rng.integers(-shape[place], shape[place], size=int(rng.integers(1, 4)))
    return {"before": ":, " * place, "c": drawn}


def gathering(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Indices along one axis, for each element of the others."""
    drawn = axis(rng, shape)
    if drawn is None:
        return None
    wanted = list(shape)
    wanted[drawn["axis"]] = int(rng.integers(1, 4))
    return {**drawn, "c": rng.integers(0, shape[drawn["axis"]], size=wanted)}


def pieces(rng: np.random.Generator, shape: Shape) -> Arguments:
    """An axis that can be halved, and one of the halves."""
    even = [place for place, size in enumerate(shape) if size in (2, 4)]
    return {"axis": pick(rng, even), "piece": int(rng.integers(2))} if even else None


def along(rng: np.random.Generator, shape: Shape) -> Arguments:
    """An axis, and a place along it."""
    drawn = axis(rng, shape)
    return None if drawn is None else {**drawn, "at": int(rng.integers(shape[drawn["axis"]]))}
