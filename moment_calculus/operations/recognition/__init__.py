"""Recognition of softmax, logsumexp and normalisations written in elementary operations."""

from moment_calculus.operations.recognition import normalisation, softmax
from moment_calculus.operations.recognition.base import (
    RULES,
    VECTOR_FUNCTIONS,
    Symbolic,
    View,
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
    "normalisation",
    "recognition_rule",
    "resolved",
    "softmax",
]
