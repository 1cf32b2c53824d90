"""Which activations never decrease: these commute with maxima and minima of entries."""

from __future__ import annotations

from moment_calculus.functions.base import Activation
from moment_calculus.functions.families.elu import ELU
from moment_calculus.functions.families.exponential import Exp, Expm1
from moment_calculus.functions.families.logistic import Sigmoid, Tanh
from moment_calculus.functions.families.named import Softplus, Softsign, Tanhshrink
from moment_calculus.functions.families.normal_cdf import Erf, NormalCdf
from moment_calculus.functions.families.piecewise import PiecewiseLinear
from moment_calculus.functions.families.relu import Heaviside, LeakyReLU, ReLU
from moment_calculus.functions.rescaled import Rescaled

_INCREASING = frozenset(
    {Erf, Exp, Expm1, Heaviside, NormalCdf, ReLU, Sigmoid, Softplus, Softsign, Tanh, Tanhshrink}
)


def is_increasing(activation: Activation) -> bool:
    """Return whether an activation never decreases; False if a parameter of it is an array."""
    kind = type(activation)
    if isinstance(activation, Rescaled):
        return activation.inner * activation.outer > 0 and is_increasing(activation.activation)
    if kind is LeakyReLU or kind is ELU:
        parameter = activation.negative_slope if kind is LeakyReLU else activation.alpha  # type: ignore[attr-defined]
        return isinstance(parameter, int | float) and parameter >= 0
    if isinstance(activation, PiecewiseLinear):
        return all(step >= 0 for step in (*activation.slopes, *activation.jumps))
    return kind in _INCREASING
