"""Likelihoods as users write them in NumPyro, of a random f and three observations.

Those that the Pyro front end serves, too, have the names of ``tests/pyro/likelihoods/cases.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import sigmoid, softplus
from jax.scipy.special import ndtr
from numpyro.distributions.transforms import AffineTransform

from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.values.propagation import Propagation
from numpyro_moments.evaluation.interpreter import Interpreter
from numpyro_moments.likelihoods.structure import stripped
from tests.cases.hosts.sites_and_likelihoods import (
    CLASSES,
    CONTINUOUS,
    COUNTS,
    CUTS,
    GATE,
    POSITIVE,
    shared,
)

MEAN, VARIANCE = np.array([-0.8, 0.3, 1.1]), np.array([0.3, 0.9, 0.05])

SHARES = np.array([0.2, 0.5, 0.9])
MIXING = np.array([0.3, 0.7])

SHARED = shared(dist, exp=jnp.exp, tanh=jnp.tanh, sigmoid=sigmoid, softplus=softplus, ndtr=ndtr) | {
    "transformed": (
        lambda f: dist.TransformedDistribution(
            dist.Normal(jnp.zeros(3), 1.0), [AffineTransform(f, 2.0)]
        ),
        CONTINUOUS,
    ),
    "ZeroInflatedPoisson": (lambda f: dist.ZeroInflatedPoisson(GATE, jnp.exp(f)), COUNTS),
    "ZeroInflatedPoisson, both": (
        lambda f: dist.ZeroInflatedDistribution(dist.Poisson(jnp.exp(f)), gate_logits=f),
        COUNTS,
    ),
    "ZeroInflatedNegativeBinomial": (
        lambda f: dist.ZeroInflatedDistribution(dist.NegativeBinomial(2.0, logits=f), gate=GATE),
        COUNTS,
    ),
    "OrderedLogistic": (lambda f: dist.OrderedLogistic(f, CUTS), CLASSES),
}

OWN = {
    "HalfCauchy": (lambda f: dist.HalfCauchy(jnp.exp(f)), POSITIVE),
    "InverseGamma": (lambda f: dist.InverseGamma(2.0, jnp.exp(f)), POSITIVE),
    "Pareto": (lambda f: dist.Pareto(0.1, jnp.exp(f)), POSITIVE),
    "Chi2": (lambda f: dist.Chi2(jnp.exp(f)), POSITIVE),
    "SoftLaplace": (lambda f: dist.SoftLaplace(f, 1.0), CONTINUOUS),
    "AsymmetricLaplace": (lambda f: dist.AsymmetricLaplace(f, 1.0, 2.0), CONTINUOUS),
    "Beta": (lambda f: dist.Beta(jnp.exp(f), 2.0), SHARES),
    "BetaProportion": (lambda f: dist.BetaProportion(sigmoid(f), 2.0), SHARES),
    "Kumaraswamy": (lambda f: dist.Kumaraswamy(jnp.exp(f), 2.0), SHARES),
    "BetaBinomial": (lambda f: dist.BetaBinomial(jnp.exp(f), 2.0, 7), COUNTS),
    "NegativeBinomial, probs": (lambda f: dist.NegativeBinomial(3.0, sigmoid(f)), COUNTS),
    "NegativeBinomial2": (lambda f: dist.NegativeBinomial2(jnp.exp(f), 3.0), COUNTS),
    "Geometric, probs": (lambda f: dist.Geometric(sigmoid(f)), COUNTS),
    "ZeroInflatedNegativeBinomial2": (
        lambda f: dist.ZeroInflatedNegativeBinomial2(jnp.exp(f), 2.0, gate=GATE),
        COUNTS,
    ),
    "HurdlePoisson": (lambda f: dist.HurdlePoisson(GATE, jnp.exp(f)), COUNTS),
    "HurdleGamma": (lambda f: dist.HurdleGamma(GATE, 2.0, jnp.exp(f)), POSITIVE),
    "truncated Normal": (lambda f: dist.TruncatedNormal(f, 1.0, low=0.0), POSITIVE),
    "left-censored Normal": (
        lambda f: dist.LeftCensoredDistribution(dist.Normal(f, 1.0), np.array([0, 1, 0])),
        CONTINUOUS,
    ),
    "mixture of Normals": (
        lambda f: dist.MixtureGeneral(
            dist.Categorical(MIXING), [dist.Normal(f, 1.0), dist.Normal(jnp.zeros(3), 2.0)]
        ),
        CONTINUOUS,
    ),
}

CASES = SHARED | OWN


def latent(name="f", mean=MEAN, variance=VARIANCE, *, event_dim=0, propagation=None):
    """A Gaussian site with independent components."""
    # new arrays: JAX keeps the precision of those of NumPy that were constants of a program
    mean, variance = (
        jnp.asarray(part.copy() if isinstance(part, np.ndarray) else part)
        for part in (mean, variance)
    )
    return site_value(name, mean, variance, propagation or Propagation(), event_dim=event_dim)


def distribution(make, *values):
    """The distribution that a program makes of random values, as a front end gets it."""
    shapes = [jax.ShapeDtypeStruct(v.shape, v.gaussian().mean.dtype) for v in values]
    jaxpr, tree = jax.make_jaxpr(lambda *f: stripped(make(*f)), return_shape=True)(*shapes)
    return jax.tree.unflatten(jax.tree.structure(tree), Interpreter().run_closed(jaxpr, values))
