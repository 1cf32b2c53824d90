"""Guides, priors and distributions for Pyro."""

try:
    import pyro  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'moment_guides.pyro needs Pyro and PyTorch: pip install "pyro-moments[pyro]"'
    ) from error
