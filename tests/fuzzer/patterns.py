"""How an einsum draws its pattern."""

import numpy as np

from tests.fuzzer.drawing import Arguments, Shape, array, pick

UNARY = ["ij->ji", "ij->i", "ij->j", "ijk->kij", "ijk->ik"]


BINARY = [
    *("i,i->", "i,j->ij", "bi,i->b", "bi,bi->b", "bi,bi->bi", "bi,b->i", "bi,b->bi", "bi,bj->bij"),
    *("bi,oi->bo", "bi,io->bo", "ib,oi->bo", "bi,oi->ob", "bij,bj->bi", "bij,bjk->bik"),
    *("bik,bjk->bij", "bci,oi->bco", "bi,hoi->bho", "bij,j->bi"),
]


def pattern(rng: np.random.Generator, shape: Shape) -> Arguments:
    """An einsum of one operand."""
    fitting = [text for text in UNARY if text.index("->") == len(shape)]
    return {"pattern": pick(rng, fitting)} if fitting else None


def pattern_of_two(rng: np.random.Generator, left: Shape, right: Shape) -> Arguments:
    """An einsum of two operands."""
    fitting = [text for text in BINARY if _sizes(text, left, right) is not None]
    return {"pattern": pick(rng, fitting)} if fitting else None


def pattern_with_constant(rng: np.random.Generator, shape: Shape) -> Arguments:
    """An einsum with a certain operand."""
    fitting = [text for text in BINARY if _sizes(text, shape) is not None]
    if not fitting:
        return None
    text = pick(rng, fitting)
    sizes, letters = _sizes(text, shape), text.split("->")[0].split(",")[1]
    return {
        "pattern": text,
        "c": array(rng, tuple(sizes.get(letter) or int(rng.integers(1, 4)) for letter in letters)),
    }


def _sizes(text: str, *shapes: Shape) -> dict[str, int] | None:
    """The size of every letter, if the operands fit the pattern."""
    sizes: dict[str, int] = {}
    for letters, shape in zip(text.split("->")[0].split(","), shapes, strict=False):
        if len(letters) != len(shape):
            return None
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return None
    return sizes
