"""Eager programs say where the table of an operation's errors has more than five per cent."""

import warnings

import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as F

import numpyro_moments
from moment_calculus.errors import ApproximationWarning
from pyro_moments import Moments, propagate

torch.manual_seed(0)
MEAN = torch.randn(20, 32).double()


def spread(features, scale):
    mean = MEAN[:, :features]
    return Moments(mean, variance=torch.full_like(mean, scale**2))


def normalised(x):
    return F.layer_norm(x, x.shape[-1:])


@pytest.mark.parametrize(
    ("program", "features", "off", "fine"),
    [(normalised, 4, 0.3, 0.1), (normalised, 3, 0.1, 0.03), (torch.Tensor.softmax, 16, 1.7, 1.0)],
)
def test_rows_of_more_than_five_per_cent(program, features, off, fine):
    arguments = (-1,) if program is torch.Tensor.softmax else ()
    run = lambda scale: propagate(  # noqa: E731
        lambda x: program(x, *arguments), spread(features, scale), covariance="full"
    )
    with pytest.warns(ApproximationWarning, match="are off by"):
        run(off)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ApproximationWarning)
        run(fine)


@pytest.mark.parametrize("size", [20.0, 0.2])
def test_one_feature_with_most_of_the_variance(size):
    variance = torch.full_like(MEAN, 1e-3)
    variance[3, 5] = size
    run = lambda covariance: propagate(  # noqa: E731
        normalised, Moments(MEAN, variance=variance), covariance=covariance
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ApproximationWarning)
        run("backward")
        if size < 1:
            run("full")
    if size > 1:
        with pytest.warns(ApproximationWarning, match="in 1 of 20 rows"):
            run("full")


def test_attention_warns_where_its_scores_are_wide():
    def inputs(scale):
        means = [MEAN[:, :8], MEAN[:, 8:16], MEAN[:, 16:24]]
        return [Moments(mean, variance=torch.full_like(mean, scale**2)) for mean in means]

    run = lambda scale: propagate(  # noqa: E731
        F.scaled_dot_product_attention, *inputs(scale), covariance="backward"
    )
    with pytest.warns(ApproximationWarning, match="softmax"):
        run(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ApproximationWarning)
        run(0.3)


def test_traced_programs_read_nothing():
    import jax

    x = numpyro_moments.Moments(jnp.ones((2, 3)), variance=jnp.ones((2, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ApproximationWarning)
        jax.jit(lambda v: numpyro_moments.propagate(jax.nn.softmax, x).mean + v)(0.0)
