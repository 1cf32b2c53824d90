"""Lines of the library without their device; each is wrong on another device only."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import NamedTuple

from moment_calculus.likelihoods.classes.points import Points
from moment_calculus.numerics import arrays
from moment_inference.response.corrected_moments import CorrectedMoments
from pyro_moments.particles import noise
from pyro_moments.rules.shapes import conversion


class Mutant(NamedTuple):
    """A function, the text in it that is replaced, and the run that must notice."""

    function: Callable
    text: str
    replacement: str
    run: str


MUTANTS = {
    "identity": Mutant(arrays.identity_like, "device=device(vector)", "device=None", "chain"),
    "constants": Mutant(arrays.constants, ", device=like.device", "", "tanh"),
    "numbers of a row": Mutant(
        Points.row_data, "device=device(root.mean)", 'device="cpu"', "classifier"
    ),
    "index": Mutant(conversion.positions, ", device=example_of(value).device", "", "turned"),
    "noise": Mutant(noise._normal, ", device=like.device", "", "Rényi"),
    "density": Mutant(CorrectedMoments._log_density, "to_numpy(", "np.asarray(", "diagnosis"),
}


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Replace a function's code for a while, in memory."""
    function = mutant.function
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.text) == 1
    made: dict = {}
    exec(source.replace(mutant.text, mutant.replacement), function.__globals__ | {}, made)
    original = function.__code__
    function.__code__ = made[function.__name__].__code__
    yield
    function.__code__ = original
