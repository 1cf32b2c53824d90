"""Recognition of softmax, logsumexp and normalisations written in elementary operations."""

from moment_calculus.recognition import dispersion, features, normalisation, softmax, stabilisers
from moment_calculus.recognition.base import Symbolic, View
from moment_calculus.recognition.rules import (
    RULES,
    VECTOR_FUNCTIONS,
    apply_rule,
    recognition_rule,
    resolved,
)

__all__ = [
    "RULES",
    "VECTOR_FUNCTIONS",
    "Symbolic",
    "View",
    "apply_rule",
    "dispersion",
    "features",
    "normalisation",
    "recognition_rule",
    "resolved",
    "softmax",
    "stabilisers",
]
