"""Guides, priors and distributions for NumPyro."""

try:
    import jax  # noqa: F401
    import numpyro  # noqa: F401
except ImportError as error:
    raise ImportError(
        'moment_guides.numpyro needs NumPyro and JAX: pip install "pyro-moments[numpyro]"'
    ) from error

from moment_guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_guides.numpyro.gaussian import GaussianGuide
from moment_guides.numpyro.latent_sites import init_to_network
from moment_guides.numpyro.mc_dropout import DroppedWeight, MCDropoutGuide
from moment_guides.numpyro.mean_field import DVIGuide
from moment_guides.numpyro.scales import FastNormal
from moment_guides.numpyro.sparse_priors import Horseshoe, HorseshoeReparam, LogUniform
from moment_guides.numpyro.tridiagonal import TridiagonalGuide, TridiagonalNormal
from moment_guides.numpyro.vbp import VBPGuide

__all__ = ["DVIGuide", "DroppedWeight", "EmpiricalBayesNormal", "FastNormal", "GaussianGuide"]
__all__ += ["Horseshoe", "HorseshoeReparam", "LogUniform", "MCDropoutGuide", "TridiagonalGuide"]
__all__ += ["TridiagonalNormal", "VBPGuide", "init_to_network"]
