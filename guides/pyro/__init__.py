"""Guides, priors and distributions for Pyro."""

try:
    import pyro  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'moment_guides.pyro needs Pyro and PyTorch: pip install "pyro-moments[pyro]"'
    ) from error

from moment_guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_guides.pyro.gaussian import GaussianGuide
from moment_guides.pyro.mc_dropout import DroppedWeight, MCDropoutGuide
from moment_guides.pyro.mean_field import DVIGuide, init_to_network
from moment_guides.pyro.ownership import has_free_parameters
from moment_guides.pyro.sparse_priors import Horseshoe, HorseshoeReparam, LogUniform
from moment_guides.pyro.tridiagonal import TridiagonalGuide, TridiagonalNormal
from moment_guides.pyro.vbp import VBPGuide

__all__ = ["DVIGuide", "DroppedWeight", "EmpiricalBayesNormal", "GaussianGuide", "Horseshoe"]
__all__ += ["HorseshoeReparam", "LogUniform", "MCDropoutGuide", "TridiagonalGuide"]
__all__ += ["TridiagonalNormal", "VBPGuide", "has_free_parameters", "init_to_network"]
