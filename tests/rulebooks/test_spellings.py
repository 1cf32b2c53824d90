"""Every spelling of a function has one moment under every book, in both frameworks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import numpyro_moments
import pyro_moments
from moment_calculus.functions.base import Delegating
from moment_calculus.rulebooks import RULEBOOKS
from moment_calculus.values.propagation import EXACT
from tests.rulebooks.spellings import JAX, SPELLINGS, TORCH

MEAN = np.array([0.7, -0.3])
COVARIANCE = np.array([[1.3, 0.4], [0.4, 0.8]])


class Wider(Delegating):
    """A function whose variance is 1 % too large."""

    def moments(self, mean, variance):
        centre, spread = self.function.moments(mean, variance)
        return centre, 1.01 * spread


BOOKS = {name: book for name, book in RULEBOOKS.items() if name != "exact"}
BOOKS["of a user"] = EXACT.replacing(relu=Wider, softplus=Wider, abs=Wider, gelu=Wider)


def moments(host, program, book, covariance):
    """Mean, and variance or covariance, of a function of two dependent Gaussians."""
    package, module, array = (
        (pyro_moments, TORCH, torch.tensor) if host == "pyro" else (numpyro_moments, JAX, jnp.array)
    )
    given = package.Moments(array(MEAN), covariance=array(COVARIANCE))
    options = {"rules": BOOKS[book], "covariance": covariance}
    found = package.propagate(lambda h: program(module, h), given, **options)
    spread = found.covariance if covariance == "full" else found.variance[None]
    return np.concatenate([found.mean[None], spread])


def check(host, book, name):
    """Every spelling beside the first one in Pyro."""
    mode = "full" if host == "pyro" or book == "dvi" else "diagonal"
    first = moments("pyro", SPELLINGS[name][0], book, mode)
    # a book by tangents takes them of chains by quadrature over a narrow Gaussian
    close = {"rtol": 1e-4, "atol": 1e-4} if book == "first_order" else {"rtol": 1e-6, "atol": 1e-9}
    with jax.enable_x64(True):
        for program in SPELLINGS[name]:
            np.testing.assert_allclose(moments(host, program, book, mode), first, **close)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("book", BOOKS)
def test_pyro(book, name):
    check("pyro", book, name)


@pytest.mark.parametrize("name", SPELLINGS)
def test_numpyro(name):
    check("numpyro", "logistic", name)


@pytest.mark.parametrize("book", [book for book in BOOKS if book != "logistic"])
def test_numpyro_by_other_books(book):
    for name in SPELLINGS:
        check("numpyro", book, name)
