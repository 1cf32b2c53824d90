"""Nested inference: hyperparameters on a grid, a Gaussian of everything else at each point."""

from moment_inference.nested.given.predictors import (
    PROPAGATION,
    independent,
    predictor_of,
    value_at,
    with_predictor,
)
from moment_inference.nested.given.selection import Latent
from moment_inference.nested.given.values import Values, is_linear, size_of
from moment_inference.nested.inference import Inference
from moment_inference.nested.marginals import Transform
from moment_inference.nested.marginals.stacked import mixed_elements
from moment_inference.nested.posterior import NestedPosterior
from moment_inference.nested.storing import inference_of, tree_of

__all__ = ["PROPAGATION", "Inference", "Latent", "NestedPosterior", "Transform", "Values"]
__all__ += ["independent", "inference_of", "is_linear", "mixed_elements", "predictor_of"]
__all__ += ["size_of", "tree_of", "value_at", "with_predictor"]
