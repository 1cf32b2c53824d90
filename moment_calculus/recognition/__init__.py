"""Recognition of softmax, logsumexp and normalisations written in elementary operations."""

from moment_calculus.recognition import dispersion, features, normalisation, softmax, stabilisers
from moment_calculus.recognition.base import Symbolic, View
from moment_calculus.recognition.steps import STEPS, VECTOR_FUNCTIONS, resolved, step, take_step

__all__ = [
    "STEPS",
    "VECTOR_FUNCTIONS",
    "Symbolic",
    "View",
    "dispersion",
    "features",
    "normalisation",
    "resolved",
    "softmax",
    "stabilisers",
    "step",
    "take_step",
]
