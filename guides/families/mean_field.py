"""Implement the mean-field Gaussian family: sites, initial values, moments."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, squared

VECTOR_INIT_SCALE = 0.5
Maker = TypeVar("Maker", bound=Callable[..., None])


def with_known_options(init: Maker) -> Maker:
    """Decorate the ``__init__`` of a guide: unknown options raise TypeError with the nearest."""
    signature = inspect.signature(init)
    options = [name for name in signature.parameters if name != "self"]

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs.keys() - options:
            near = difflib.get_close_matches(name, options, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"its options are {', '.join(options)}"
            raise TypeError(f"{type(self).__name__} has no option '{name}': {hint}")
        init(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


def checked_scale(init_scale: float) -> float:
    """Return the initial standard deviation; raise ValueError if it is not positive."""
    if not init_scale > 0:
        raise ValueError(f"init_scale={init_scale} must be positive")
    return init_scale


def initial_noise_scale(event_dim: int, shape: Sequence[int]) -> float:
    """Return the standard deviation of the noise on the initial location of a real site.

    It is 0 for scalars, ½ for vectors and √(2 / (rows + columns)) for matrices (Glorot
    and Bengio 2010, eq. 12), and has to be kept below the prior's standard deviation by
    the caller.
    """
    if event_dim == 0:
        return 0.0
    if event_dim == 1:
        # With all ReLU kinks at zero a network would stay nearly linear for a long time.
        return VECTOR_INIT_SCALE
    # The two largest axes of a kernel are taken as its channels, whatever the library's layout.
    *kernel_size, smaller, larger = sorted(shape[-event_dim:])
    return math.sqrt(2 / ((smaller + larger) * math.prod(kernel_size)))


class LatentSite(NamedTuple):
    """What a guide needs to know of a latent site after one run of the model."""

    name: str
    event_dim: int  # number of event axes of its unconstrained value
    support: Any  # constraint object of the framework
    plates: tuple[str, ...]  # names of the plates around it


class FixedSettings:
    """Mixin for guides with settings that are saved beside the parameters."""

    options: Any  # ``fixed()`` returns the settings by name, as a file stores them

    def fixed_settings(self) -> dict[str, Any]:
        """Return the settings of the posterior that are not parameters.

        A saved posterior can only be loaded into a guide with the same settings.
        """
        return self.options.fixed()


def varying_support_error(name: str, cause: str, *, framework: str) -> UnsupportedMoments:
    """Return the error for a latent site whose support depends on ``cause``."""
    return UnsupportedMoments(
        f"site '{name}': its support depends on {cause}, but the guide's transform of a Normal to "
        "the support is fixed",
        sites=[name],
        remedy="sample a site with a fixed support and move it by arithmetic, for example "
        f"upper * {framework}.sample('u', dist.Uniform(0, 1))",
    )


def moments(loc: Array, scale: Array) -> tuple[Array, Array]:
    """Return the mean and the variance of every component."""
    return loc, squared(scale)


def sample(loc: Array, scale: Array, noise: Array) -> Array:
    """Return reparameterised draws from standard normal ``noise``."""
    return loc + scale * noise
