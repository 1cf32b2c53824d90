"""Explain failed evaluations by causes outside the moment rules, such as NaN among the inputs.

The ``diagnosis`` modules of the front ends look for these causes in their framework.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from moment_calculus.errors import UnsupportedMoments


class Diagnosis(ABC):
    """Find out why an evaluation failed, from inputs, data and plates."""

    invalid: tuple[type[Exception], ...]  # of invalid parameters
    invalid_message: str  # part of the message of these errors
    shape_errors: tuple[type[Exception], ...]  # errors that weights inside a plate raise
    replacement: str  # name of the framework's function that replaces NaN

    @abstractmethod
    def arrays(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
        """Yield the certain arrays among a model's arguments, with names."""

    @abstractmethod
    def indices_not_finite(self, data: Any) -> tuple[Sequence[Sequence[int]], int]:
        """Return the indices [count, axes] of NaN or infinite elements, and the number of elements.

        Values that are random, or not known while a program is traced, have no such
        elements.
        """

    @abstractmethod
    def weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict
    ) -> Iterator[tuple[str, str]]:
        """Yield every weight that is sampled inside a plate, and the plate."""

    @contextmanager
    def diagnose_errors(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[None]:
        """Replace errors of a run by one that names the cause, if known."""
        try:
            yield
        except ZeroDivisionError as error:
            self.refuse_empty_inputs(model, args, kwargs, error)
            raise
        except (*self.invalid, *self.shape_errors) as error:
            if isinstance(error, self.invalid) and self.invalid_message in str(error):
                self.refuse_nonfinite_inputs(model, args, kwargs, error)
            if isinstance(error, self.shape_errors):
                self._refuse_weights_in_plates(model, args, kwargs, error)
            raise

    def refuse_empty_inputs(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception
    ) -> None:
        """Raise UnsupportedMoments if an input has no elements."""
        for name, array in self.arrays(model, args, kwargs):
            if 0 in array.shape:
                raise UnsupportedMoments(
                    f"the batch is empty: input '{name}' has shape {tuple(array.shape)}, and a "
                    "plate needs an element",
                    remedy="skip empty batches",
                ) from error

    def refuse_nonfinite_inputs(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception | None = None
    ) -> None:
        """Raise UnsupportedMoments if an input has NaN or infinite elements."""
        for name, array in self.arrays(model, args, kwargs):
            self._refuse_infinite(f"input '{name}' of the model", array, error)

    def refuse_infinite_data(self, name: str, site: Any) -> None:
        """Raise UnsupportedMoments if a site's observations are NaN or infinite."""
        self._refuse_infinite(f"the data of observed site '{name}'", site["value"])

    def explain_infinite_loss(
        self, sites: Mapping[str, Any], model: Callable, args: tuple, kwargs: dict
    ) -> None:
        """Raise UnsupportedMoments if data made a loss NaN or infinite."""
        for name, site in sites.items():
            if site["type"] == "sample" and site["is_observed"]:
                self.refuse_infinite_data(name, site)
        self.refuse_nonfinite_inputs(model, args, kwargs)

    def _refuse_infinite(self, what: str, data: Any, error: Exception | None = None) -> None:
        indices, size = self.indices_not_finite(data)
        if len(indices):
            first = tuple(int(index) for index in indices[0])
            raise UnsupportedMoments(
                f"{what} has {len(indices)} NaN or infinite element(s) of {size}, the first at "
                f"index {first}",
                remedy="leave such rows out, or impute them; where a mask hides them, replace them "
                f"by any number ({self.replacement}), because a masked NaN still enters the "
                "gradients",
            ) from error

    def _refuse_weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception
    ) -> None:
        plates: dict[str, list[str]] = {}
        for name, plate in self.weights_in_plates(model, args, kwargs):
            plates.setdefault(plate, []).append(name)
        for plate, names in plates.items():
            # An error that names its sites is not caused by others.
            if isinstance(error, UnsupportedMoments) and not {*names} & {*error.sites}:
                continue
            headline = str(error).partition("\n")[0]
            raise UnsupportedMoments(
                f"latent site(s) {', '.join(names)} were sampled inside plate '{plate}', which "
                f"gives every element of the plate weights of its own ({headline})",
                sites=names,
                remedy=f"read the weights before the plate: call the network outside of '{plate}', "
                "and open the plate for the observations only",
            ) from error


def named_arguments(function: Callable, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Return a call's arguments by parameter, or by position."""
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{f"argument {i}": argument for i, argument in enumerate(args)}, **kwargs}
