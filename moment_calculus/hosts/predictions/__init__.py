"""Predictions of one site of a model, the same code for both frameworks."""

from moment_calculus.hosts.predictions.site import PredictedSite, checked_count

__all__ = ["PredictedSite", "checked_count"]
