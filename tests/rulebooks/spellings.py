"""Spellings of functions, each a function of a host's module and of a value.

The first one of each is the reference.
"""

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F

TORCH = SimpleNamespace(
    **{name: getattr(torch, name) for name in "abs exp erf log log1p sign square tanh".split()},
    **{
        name: getattr(torch, name)
        for name in "expm1 logaddexp logaddexp2 minimum relu sigmoid where".split()
    },
    array=lambda number: torch.tensor(number, dtype=torch.float64),
    clip=torch.clamp,
    leaky_relu=F.leaky_relu,
    log_ndtr=torch.special.log_ndtr,
    maximum=torch.maximum,
    ndtr=torch.special.ndtr,
    number=lambda condition: condition.double(),
    softplus=F.softplus,
    step=lambda h: torch.heaviside(h, torch.zeros((), dtype=torch.float64)),
)
JAX = SimpleNamespace(
    **{name: getattr(jnp, name) for name in "abs exp log log1p sign square tanh".split()},
    **{
        name: getattr(jnp, name)
        for name in "expm1 logaddexp logaddexp2 maximum minimum where".split()
    },
    array=float,
    clip=jnp.clip,
    erf=jax.scipy.special.erf,
    leaky_relu=jax.nn.leaky_relu,
    log_ndtr=jax.scipy.special.log_ndtr,
    ndtr=jax.scipy.special.ndtr,
    number=lambda condition: condition.astype(float),
    relu=jax.nn.relu,
    sigmoid=jax.nn.sigmoid,
    softplus=jax.nn.softplus,
    step=lambda h: jnp.heaviside(h, 0.0),
)


def relu6(m: Any, h: Any) -> Any:
    return m.clip(h, 0.0, 6.0)


SPELLINGS: dict[str, list] = {
    "step": [
        lambda m, h: m.step(h),
        lambda m, h: m.number(h > 0),
        lambda m, h: m.number(h >= 0),
        lambda m, h: 1 - m.number(h < 0),
        lambda m, h: m.number(~(h <= 0)),
        lambda m, h: m.where(h > 0, m.array(1.0), m.array(0.0)),
        lambda m, h: (m.sign(h) + 1) / 2,
        lambda m, h: m.number(m.relu(h) > 0),
    ],
    "step at a level": [
        lambda m, h: m.step(h - 0.4),
        lambda m, h: m.number(h > 0.4),
        lambda m, h: m.where(h < 0.4, m.array(0.0), m.array(1.0)),
        lambda m, h: m.number((h > 0.4) & (h > -1)),
    ],
    "window": [
        lambda m, h: m.number(h > -1) - m.number(h > 1),
        lambda m, h: m.number((h > -1) & (h <= 1)),
        lambda m, h: m.number((h > -1) ^ (h > 1)),
        lambda m, h: 1 - m.number((h < -1) | (h > 1)),
        lambda m, h: m.number(m.abs(h) < 1),
    ],
    "relu": [
        lambda m, h: m.relu(h),
        lambda m, h: h * (h > 0),
        lambda m, h: h * m.step(h),
        lambda m, h: m.where(h > 0, h, m.array(0.0)),
        lambda m, h: m.maximum(h, m.array(0.0)),
        lambda m, h: m.clip(h, 0.0, None),
        lambda m, h: -m.minimum(-h, m.array(0.0)),
        lambda m, h: (h + m.abs(h)) / 2,
        lambda m, h: h - m.clip(h, None, 0.0),
        lambda m, h: m.leaky_relu(h, 0.0),
    ],
    "relu at a level": [
        lambda m, h: m.relu(h - 0.4) + 0.4,
        lambda m, h: m.clip(h, 0.4, None),
        lambda m, h: m.maximum(h, m.array(0.4)),
        lambda m, h: m.where(h > 0.4, h, m.array(0.4)),
    ],
    "leaky relu": [
        lambda m, h: m.leaky_relu(h, 0.1),
        lambda m, h: m.where(h > 0, h, 0.1 * h),
        lambda m, h: m.maximum(h, 0.1 * h),
        lambda m, h: m.relu(h) - 0.1 * m.relu(-h),
        lambda m, h: 0.1 * h + 0.9 * m.relu(h),
    ],
    "residual": [
        lambda m, h: 2 * m.leaky_relu(h, 0.5),
        lambda m, h: h + m.relu(h),
        lambda m, h: m.where(h > 0, 2 * h, h),
    ],
    "abs": [
        lambda m, h: m.abs(h),
        lambda m, h: h * m.sign(h),
        lambda m, h: m.where(h > 0, h, -h),
        lambda m, h: m.maximum(h, -h),
        lambda m, h: m.relu(h) + m.relu(-h),
    ],
    "clip": [
        lambda m, h: m.clip(h, -1.0, 1.0),
        lambda m, h: m.maximum(m.minimum(h, m.array(1.0)), m.array(-1.0)),
        lambda m, h: m.relu(h + 1) - m.relu(h - 1) - 1,
        lambda m, h: m.where(h > 1, m.array(1.0), m.where(h < -1, m.array(-1.0), h)),
    ],
    "hardsigmoid": [lambda m, h: relu6(m, h + 3) / 6, lambda m, h: m.clip(h / 6 + 0.5, 0.0, 1.0)],
    "sigmoid": [
        lambda m, h: m.sigmoid(h),
        lambda m, h: 1 / (1 + m.exp(-h)),
        lambda m, h: m.exp(h) / (1 + m.exp(h)),
        lambda m, h: 1 - m.sigmoid(-h),
        lambda m, h: (1 + m.exp(-h)) ** -1,
        lambda m, h: m.where(h > 0, 1 / (1 + m.exp(-h)), m.exp(h) / (1 + m.exp(h))),
    ],
    "tanh": [
        lambda m, h: m.tanh(h),
        lambda m, h: (m.exp(h) - m.exp(-h)) / (m.exp(h) + m.exp(-h)),
        lambda m, h: -m.tanh(-h),
        lambda m, h: (m.exp(2 * h) - 1) / (m.exp(2 * h) + 1),
    ],
    "softplus": [
        lambda m, h: m.softplus(h),
        lambda m, h: m.log1p(m.exp(h)),
        lambda m, h: m.log(1 + m.exp(h)),
        lambda m, h: m.logaddexp(h, m.array(0.0)),
        lambda m, h: m.logaddexp2(h / math.log(2), m.array(0.0)) * math.log(2),
        lambda m, h: m.relu(h) + m.log1p(m.exp(-m.abs(h))),
        lambda m, h: -m.log(m.sigmoid(-h)),
    ],
    "silu": [lambda m, h: h * m.sigmoid(h), lambda m, h: h / (1 + m.exp(-h))],
    "gelu": [lambda m, h: h * m.ndtr(h), lambda m, h: 0.5 * h * (1 + m.erf(h / math.sqrt(2)))],
    "ndtr": [lambda m, h: m.ndtr(h), lambda m, h: 0.5 * (1 + m.erf(h / math.sqrt(2)))],
    "log_ndtr": [
        lambda m, h: m.log_ndtr(h),
        lambda m, h: m.log(m.ndtr(h)),
        lambda m, h: m.log((1 + m.erf(h / math.sqrt(2))) / 2),
        lambda m, h: m.log(1 - 0.5 * (1 - m.erf(h / math.sqrt(2)))),
    ],
    "elu": [
        lambda m, h: m.where(h > 0, h, m.expm1(h)),
        lambda m, h: m.relu(h) + m.expm1(m.clip(h, None, 0.0)),
        lambda m, h: m.where(h > 0, h, m.exp(h) - 1),
    ],
    "square": [
        lambda m, h: m.square(h),
        lambda m, h: h * h,
        lambda m, h: h**2,
        lambda m, h: m.abs(h) * m.abs(h),
    ],
    "expm1": [lambda m, h: m.expm1(h), lambda m, h: m.exp(h) - 1],
}
