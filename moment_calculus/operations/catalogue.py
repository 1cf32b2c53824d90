"""The catalogue: the operations that front ends serve, and the values and layouts that rules name.

It is the door through which a front end takes them, to say how its own calls are written. Modules
that have several list them in ``__all__``, where a new one is added. Functions of one value are
rows here: both front ends serve them by their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from moment_calculus.functions.table import ACTIVATIONS, Activation, Integrated, activation
from moment_calculus.operations.backward.settled import settle_parameters
from moment_calculus.operations.dropout.noise import *
from moment_calculus.operations.dropout.one_hot import one_hot
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.choices import *
from moment_calculus.operations.elementwise.elementary import *
from moment_calculus.operations.elementwise.logarithms import log, log_add_exp
from moment_calculus.operations.elementwise.products import *
from moment_calculus.operations.elementwise.sums import *
from moment_calculus.operations.elementwise.unary import *
from moment_calculus.operations.linear.diagonals import *
from moment_calculus.operations.linear.factorisation import *
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import *
from moment_calculus.operations.linear.reductions import *
from moment_calculus.operations.normalised.normalisation import normalise
from moment_calculus.operations.normalised.softmax import *
from moment_calculus.operations.recognition import *
from moment_calculus.operations.recurrent.cells import *
from moment_calculus.operations.recurrent.layers import Layers
from moment_calculus.operations.shapes.concatenation import *
from moment_calculus.operations.shapes.coordinates import *
from moment_calculus.operations.shapes.indexing import *
from moment_calculus.operations.shapes.moves import *
from moment_calculus.operations.shapes.ordered import *
from moment_calculus.operations.shapes.reshaping import *
from moment_calculus.operations.shapes.rows import *
from moment_calculus.operations.shapes.sticks import *
from moment_calculus.operations.shapes.zero_sum import zero_sum
from moment_calculus.operations.windows.convolution import *
from moment_calculus.operations.windows.largest import *
from moment_calculus.operations.windows.pooling import *
from moment_calculus.values import Value


class Operation(NamedTuple):
    """The moment rule of a function of one value, and a remark for the pages of what is served."""

    rule: Callable[[Value], Value]
    remark: str = ""


def _of_table(name: str, value: Value) -> Value:
    return apply(activation(name), value)


def _log_by(scale: float, value: Value) -> Value:
    return scale_shift(log(value), scale)


_POSITIVE = " of a positive function of a Gaussian"
_POWERS = {"cbrt": 1 / 3, "reciprocal": -1.0, "rsqrt": -0.5, "sqrt": 0.5}

FUNCTIONS = {
    **{name: Operation(partial(_of_table, name)) for name in ACTIVATIONS},
    **{
        name: Operation(partial(elementary.apply_by_name, name), ", by quadrature")
        for name in elementary.FUNCTIONS
    },
    **{
        name: Operation(partial(power, exponent=exponent), _POSITIVE)
        for name, exponent in _POWERS.items()
    },
    "log": Operation(log, _POSITIVE),
    "log10": Operation(partial(_log_by, 1 / math.log(10)), _POSITIVE),
    "log1p": Operation(elementary.log1p, " of a function of a Gaussian that is above −1"),
    "log2": Operation(partial(_log_by, 1 / math.log(2)), _POSITIVE),
    "log_ndtr": Operation(elementary.log_normal_cdf, ", by quadrature"),
    "neg": Operation(partial(scale_shift, scale=-1.0)),
    "sign": Operation(sign),
    "square": Operation(square),
}
