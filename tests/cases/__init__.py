"""The case table: one row for every rule, with all properties of ``tests/checks/general.py``.

A row names the rule and the plain function of which it gives the moments; the tests integrate the
plain function by themselves, so that no formula is written twice.
"""

from tests.cases.activations import ACTIVATIONS
from tests.cases.layers import LAYERS
from tests.cases.likelihoods import DIVERGENCES, LIKELIHOODS
from tests.cases.tempered import TEMPERED
from tests.cases.windows import WINDOWS

__all__ = ["ACTIVATIONS", "DIVERGENCES", "LAYERS", "LIKELIHOODS", "TEMPERED", "WINDOWS"]
