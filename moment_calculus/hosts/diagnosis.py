"""Why an evaluation failed, as far as it does not depend on the host: refusals that name the cause.

See the ``diagnosis`` modules of the front ends, which look for these causes after a failure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments


def named_arguments(function: Callable, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The arguments of a call by the names that the function gives them, or by place.

    Args:
        function: what is called.
        args: its arguments.
        kwargs: its keyword arguments.
    """
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{f"argument {i}": argument for i, argument in enumerate(args)}, **kwargs}


def empty_batch(name: str, shape: Sequence[int]) -> UnsupportedMoments:
    """An input without elements.

    Args:
        name: the input.
        shape: its shape.
    """
    return UnsupportedMoments(
        f"the batch is empty: input '{name}' has shape {tuple(shape)}, and a plate needs an "
        "element",
        remedy="skip empty batches",
    )


def not_finite(
    what: str, places: Sequence[Sequence[int]], size: int, *, replacement: str
) -> UnsupportedMoments:
    """An input or an observation that is NaN or infinite.

    Args:
        what: its description.
        places: indices of the elements that are, [count, axes].
        size: number of all elements.
        replacement: the host's function that replaces NaN by numbers.
    """
    return UnsupportedMoments(
        f"{what} has {len(places)} NaN or infinite element(s) of {size}, the first at index "
        f"{tuple(int(index) for index in places[0])}",
        remedy="leave such rows out, or impute them; where a mask hides them, replace them by any "
        f"number ({replacement}), because a masked NaN still enters the gradients",
    )


def weights_in_plates(
    sites: Iterable[tuple[str, str]], error: Exception
) -> UnsupportedMoments | None:
    """Weights that were sampled inside a plate, if they are the cause of an error.

    Args:
        sites: the names of weights, each with that of the plate it is inside.
        error: what failed; a refusal knows its sites, and others are not its cause.

    Returns:
        The refusal, for one of the plates; None if there is no such weight.
    """
    plates: dict[str, list[str]] = {}
    for name, plate in sites:
        plates.setdefault(plate, []).append(name)
    if isinstance(error, UnsupportedMoments):
        plates = {plate: names for plate, names in plates.items() if {*names} & {*error.sites}}
    for plate, names in plates.items():
        headline = str(error).partition("\n")[0]
        return UnsupportedMoments(
            f"latent site(s) {', '.join(names)} were sampled inside plate '{plate}', which gives "
            f"every element of the plate weights of its own ({headline})",
            sites=names,
            remedy=f"read the weights before the plate: call the network outside of '{plate}', "
            "and open the plate for the observations only",
        )
    return None
