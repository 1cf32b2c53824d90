"""Nested inference: hyperparameters on a grid, a Gaussian of everything else at each point."""

from moment_inference.nested.given.predictors import (
    PROPAGATION,
    independent,
    predictor_of,
    value_at,
    with_predictor,
)
from moment_inference.nested.given.refusals import moving_support, not_continuous, subsampled
from moment_inference.nested.given.selection import Latent
from moment_inference.nested.given.values import Values, is_linear, size_of
from moment_inference.nested.inference import Inference, medians_of
from moment_inference.nested.marginals import Transform
from moment_inference.nested.posterior import NestedPosterior
from moment_inference.nested.storing import inference_of, tree_of

__all__ = ["PROPAGATION", "Inference", "Latent", "NestedPosterior", "Transform", "Values"]
__all__ += ["independent", "inference_of", "is_linear", "medians_of", "moving_support"]
__all__ += ["not_continuous", "predictor_of", "size_of", "subsampled", "tree_of", "value_at"]
__all__ += ["with_predictor"]
