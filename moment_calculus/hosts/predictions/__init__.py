"""What is predicted of one site of a model, in the same words and numbers for every host."""

from moment_calculus.hosts.predictions.site import PredictedSite, checked_count

__all__ = ["PredictedSite", "checked_count"]
