"""Functions as users of JAX spell them, with and without a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import nn, scipy

slopes = np.array([0.1, -0.4, 0.7])

# Functions of the table in other spellings; they have to be recognised.
SPELLINGS = {
    "relu by where": lambda h: jnp.where(h > 0, h, 0),
    "relu by maximum": lambda h: jnp.maximum(h, 0),
    "relu by mask": lambda h: h * (h > 0),
    "relu by clip": lambda h: jnp.clip(h, 0.0, None),
    "leaky relu by maximum": lambda h: jnp.maximum(0.01 * h, h),
    "leaky relu by minimum": lambda h: jnp.minimum(h, 0) * 0.1 + jnp.maximum(h, 0),
    "double relu": lambda h: nn.relu(h) - nn.relu(h - 0.5),
    "residual relu": lambda h: h + nn.relu(h),
    "absolute": lambda h: jnp.where(h < 0, -h, h) + 1,
    "hard swish by hand": lambda h: h * nn.relu6(h + 3) / 6,
    "hard sigmoid by clip": lambda h: jnp.clip(0.2 * h + 0.5, 0, 1),
    "sparse sigmoid": nn.sparse_sigmoid,
    "window": lambda h: jnp.where((h > -1) & (h <= 1), h, 0.0),
    "outside": lambda h: jnp.where((h < -1) | ~(h < 1), h, 0.0),
    "condition of a constant": lambda h: jnp.where(0 * h < 1.0, h, 2 * h),
    "parity of conditions": lambda h: jnp.where((h > 0) ^ (h > 1), 1.0, -1.0),
    "steps": lambda h: 1.0 * (h > 0) + jnp.where(h >= 1, 2.0, 0.0),
    "sign": lambda h: jnp.sign(h) * 2 - 1,
    "stairs": lambda h: jnp.where(h < -1, -1.0, jnp.where(h > 1, 1.0, jnp.sign(h) * 0.5)),
    "clamp": lambda h: jax.lax.clamp(-0.5, h, 0.5),
    "repaired": lambda h: jnp.nan_to_num(nn.relu(h)) * jnp.isfinite(h),
    "sigmoid by exp": lambda h: 1 / (1 + jnp.exp(-h)),
    "sigmoid by tanh": lambda h: 0.5 * (1 + jnp.tanh(0.5 * h)),
    "sigmoid by where": lambda h: jnp.where(
        h > 0, 1 / (1 + jnp.exp(-h)), jnp.exp(h) / (1 + jnp.exp(h))
    ),
    "tanh by exp": lambda h: (jnp.exp(h) - jnp.exp(-h)) / (jnp.exp(h) + jnp.exp(-h)),
    "expit": scipy.special.expit,
    "softplus by logaddexp": lambda h: jnp.logaddexp(h, 0.0),
    "softplus by hand": lambda h: jnp.maximum(h, 0) + jnp.log1p(jnp.exp(-jnp.abs(h))),
    "softplus of a scaled value": lambda h: nn.softplus(3 * h - 1) / 3,
    "silu by hand": lambda h: h * nn.sigmoid(h),
    "silu by division": lambda h: h / (1 + jnp.exp(-h)),
    "quick gelu": lambda h: h * nn.sigmoid(1.702 * h),
    "mish by hand": lambda h: h * jnp.tanh(nn.softplus(h)),
    "gelu by erf": lambda h: 0.5 * h * (1 + scipy.special.erf(h / np.sqrt(2))),
    "gelu by cdf": lambda h: h * scipy.stats.norm.cdf(h),
    "gelu by tanh": lambda h: 0.5 * h * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))),
    "cdf": scipy.stats.norm.cdf,
    "cdf of a shifted value": lambda h: scipy.stats.norm.cdf(h, 0.5, 2.0),
    "elu by where": lambda h: jnp.where(h > 0, h, 0.3 * jnp.expm1(h)),
    "polynomial": lambda h: h * h * h - 1,
    "power of exp": lambda h: jnp.sqrt(2 * jnp.exp(h)) + jnp.exp(0.5 * h),
    "powers by arrays": lambda h: (2 * jnp.exp(h)) ** (slopes / 2),
    "copies": lambda h: jax.lax.optimization_barrier(jnp.real(jnp.copy(h))) * 1,
}
# Functions without a closed form: by quadrature, with the places where they bend.
INTEGRATED = {
    "huber": lambda h: jnp.where(jnp.abs(h) < 1, 0.5 * h * h, jnp.abs(h) - 0.5),
    "sparse plus": nn.sparse_plus,
    "square plus": nn.squareplus,
    "log ndtr": scipy.special.log_ndtr,
    "inverse tangent": lambda h: jnp.arctan(h) + jnp.arcsinh(h),
    "hyperbolic": lambda h: jnp.sinh(0.5 * h) + jnp.log(jnp.cosh(h)),
    "radial": lambda h: jnp.exp(-h * h / 2) + h * jnp.exp(-0.5 * (h - slopes) ** 2),
    "density": scipy.stats.norm.pdf,
    "kinks behind a sum": lambda h: nn.relu(h * nn.sigmoid(h) - 0.3) - nn.relu(nn.gelu(h) + 0.1),
    "gate of a condition": lambda h: jnp.where(h * h > 1, jnp.tanh(h), jnp.sin(h)),
    "logarithms": lambda h: jnp.log(0.5 + jnp.square(h)) + jnp.log1p(jnp.exp(h) + h**2),
    "real power": lambda h: nn.softplus(h) ** 0.7 + jax.lax.rsqrt(1 + jnp.abs(h)),
    "powers of numbers": lambda h: 2.0**h + jnp.exp(np.log(slopes + 1.3) * h),
    "roots": lambda h: jnp.cbrt(1 + h**2) + jnp.exp(h) ** -0.5,
    "arcs of bounded": lambda h: jnp.arcsin(0.9 * jnp.tanh(h)) + jnp.arccosh(jnp.cosh(h)),
    "gamma": lambda h: jax.lax.lgamma(1 + nn.softplus(h)) + jax.lax.digamma(0.5 + jnp.exp(h)),
    "threshold array": lambda h: jnp.where(h > slopes, h, 0.2 * slopes),
    "array of masks": lambda h: jnp.where((h > 0) & (slopes > 0), h, -1.0),
    "unrolled": lambda h: unrolled(h),
}


# Functions that jump, where a plain grid errs by its step.
JUMPING = (
    "window",
    "outside",
    "parity of conditions",
    "steps",
    "sign",
    "stairs",
    "gate of a condition",
    "threshold array",
    "array of masks",
)


def unrolled(h):
    """Fifty steps, each of which uses the last one twice: no work may double with every step."""
    for _ in range(50):
        h = h - 0.1 * jnp.tanh(h)
    return h
