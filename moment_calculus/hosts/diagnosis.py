"""Why an evaluation failed: causes outside the rules, found after the failure.

The ``diagnosis`` modules of the front ends say how these causes are looked for in their host.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from moment_calculus.refusals.errors import UnsupportedMoments


class Diagnosis(ABC):
    """Looks for what made an evaluation fail, after it has."""

    invalid: tuple[type[Exception], ...]  # errors that invalid parameters of distributions raise
    invalid_message: str  # part of what these say
    misshapen: tuple[type[Exception], ...]  # errors that weights inside a plate raise
    replacement: str  # the host's function that replaces NaN by numbers

    @abstractmethod
    def arrays(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
        """The certain arrays among the arguments of a model, with their names."""

    @abstractmethod
    def not_finite(self, data: Any) -> tuple[Sequence[Sequence[int]], int]:
        """Indices of the elements that are NaN or infinite, [count, axes]; the size of all.

        There are none in what is random or not known.
        """

    @abstractmethod
    def weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict
    ) -> Iterator[tuple[str, str]]:
        """Names of weights that are sampled inside a plate, each with that of the plate."""

    @contextmanager
    def diagnosed(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[None]:
        """Replace the errors of a run by refusals that name the cause, where it is known.

        Args:
            model: of the host.
            args: its arguments.
            kwargs: its keyword arguments.

        Raises:
            UnsupportedMoments: if the batch is empty, an input is not finite, or weights were read
                inside a plate; any other error passes unchanged.
        """
        try:
            yield
        except ZeroDivisionError as error:
            self.refuse_empty_inputs(model, args, kwargs, error)
            raise
        except (*self.invalid, *self.misshapen) as error:
            if isinstance(error, self.invalid) and self.invalid_message in str(error):
                self.refuse_infinite_inputs(model, args, kwargs, error)
            if isinstance(error, self.misshapen):
                self._refuse_weights_in_plates(model, args, kwargs, error)
            raise

    def refuse_empty_inputs(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception
    ) -> None:
        """Refuse a batch without elements; arguments as in :meth:`diagnosed`."""
        for name, array in self.arrays(model, args, kwargs):
            if 0 in array.shape:
                raise empty_batch(name, array.shape) from error

    def refuse_infinite_inputs(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception | None = None
    ) -> None:
        """Refuse certain inputs that are NaN or infinite; arguments as in :meth:`diagnosed`."""
        for name, array in self.arrays(model, args, kwargs):
            self._refuse_infinite(f"input '{name}' of the model", array, error)

    def refuse_infinite_data(self, name: str, site: Any) -> None:
        """Refuse observations that are NaN or infinite, if they are known.

        Args:
            name: the observed site.
            site: of the model's trace.
        """
        self._refuse_infinite(f"the data of observed site '{name}'", site["value"])

    def explain_infinite_loss(
        self, sites: Mapping[str, Any], model: Callable, args: tuple, kwargs: dict
    ) -> None:
        """Refuse the data or the inputs that made a loss infinite or NaN, if they did.

        Args:
            sites: of the model's trace, by name.
            model: of the host.
            args: its arguments.
            kwargs: its keyword arguments.
        """
        for name, site in sites.items():
            if site["type"] == "sample" and site["is_observed"]:
                self.refuse_infinite_data(name, site)
        self.refuse_infinite_inputs(model, args, kwargs)

    def _refuse_infinite(self, what: str, data: Any, error: Exception | None = None) -> None:
        places, size = self.not_finite(data)
        if len(places):
            raise not_finite(what, places, size, replacement=self.replacement) from error

    def _refuse_weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception
    ) -> None:
        refusal = weights_in_plates(self.weights_in_plates(model, args, kwargs), error)
        if refusal is not None:
            raise refusal from error


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
