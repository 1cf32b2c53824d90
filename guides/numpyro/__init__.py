"""Guides, priors and distributions for NumPyro."""

try:
    import jax  # noqa: F401
    import numpyro  # noqa: F401
except ImportError as error:
    raise ImportError(
        'moment_guides.numpyro needs NumPyro and JAX: pip install "pyro-moments[numpyro]"'
    ) from error
