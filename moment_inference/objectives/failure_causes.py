"""Explain failed evaluations by causes outside the moment rules, such as NaN among the inputs.

The ``diagnosis`` modules of the front ends look for these causes in their framework.
"""

from __future__ import annotations

import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from moment_calculus.errors import UnsupportedMoments, discrete_remedy, raising_line
from moment_calculus.predictions.frames import is_frame, numeric
from moment_inference.objectives.arguments import check_call
from moment_inference.objectives.observations import Observations

# What errors of arrays that do not fit say, in torch and in JAX; torch.vmap says "output with
# shape" where a program cannot fill arrays, and is run once for each particle.
SHAPES = re.compile(
    r"\A(?!output with shape)[^\n]*"
    r"(must match|mismatch|cannot be multiplied|broadcast|ncompatible|contracting dim|same shape"
    r"|same reduction dim)"
)
# The axes of two arrays that do not contract: of moments, of torch (twice), and of JAX.
INNER = re.compile(
    r"(\d+)\] X \[(\d+)|x(\d+) and (\d+)x|x(\d+)\), vec \((\d+)|shape, got \((\d+),\) and \((\d+),"
)
REPEATED = re.compile(r"(?:Multiple sample sites named|unique names but got) ['`]([^'`]*)['`]")
# What torch's and NumPyro's distributions say of parameters: the parameter, and the family.
INVALID = re.compile(r"parameter (?P<name>\w+) .*of distribution (?P<family>\w+)", re.DOTALL)
INVALID_IN_NUMPYRO = re.compile(r"(?P<family>\w+) distribution got invalid (?P<name>\w+) parameter")
BEYOND = re.compile(r"index (-?\d+) is out of bounds for .* with size (\d+)")
# What torch and JAX say where an array of data is an index, or a label, and no whole number.
NO_INDEX = re.compile(r"used as indices must be|Indexer must have|indices must be of integer")
UNOBSERVED = re.compile(r"Continuous inference cannot handle discrete sample site '([^']*)'")


class Diagnosis(Observations):
    """Find out why an evaluation failed, from inputs, data and plates."""

    invalid_message: str  # part of the message of errors of invalid parameters
    shape_errors: tuple[type[Exception], ...]  # errors that weights inside a plate raise
    own: type | tuple[type, ...]  # the framework's arrays
    as_array: str  # how a user makes one

    @abstractmethod
    def function(self, model: Any) -> Any:
        """Return the function inside the framework's handlers."""

    @abstractmethod
    def leaves(self, argument: Any) -> Iterator[Any]:
        """Yield the arrays and other leaves inside an argument."""

    @abstractmethod
    def mapped(self, argument: Any, function: Callable[[Any], Any]) -> Any:
        """Return an argument with a function of its arrays and other leaves."""

    @abstractmethod
    def latent_sites(self, model: Callable, args: tuple, kwargs: dict) -> list[Any]:
        """Return the latent sites of a run of the model, each with the user's ``line``."""

    @abstractmethod
    def weights_in_plates(
        self, model: Callable, args: tuple, kwargs: dict
    ) -> Iterator[tuple[str, str]]:
        """Yield every weight that is sampled inside a plate, and the plate."""

    def arrays(self, model: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
        """Yield the framework's arrays among a model's arguments, with names."""
        for name, argument in named_arguments(self.function(model), args, kwargs).items():
            for part in self.leaves(argument):
                if isinstance(part, self.own):
                    yield name, part

    @contextmanager
    def diagnose_errors(
        self, model: Callable, args: tuple, kwargs: dict, guide: Callable | None = None
    ) -> Iterator[None]:
        """Replace errors of a run by one that names the cause, if known.

        A ``guide`` at its parameters tells the shapes that latent sites were trained with.
        """
        try:
            yield
        except UnsupportedMoments as error:
            if "__array__" in str(error):  # NumPy or pandas asked for the numbers of a moment
                self._explain_arguments(model, args, kwargs, error)
            self._explain_shapes(model, args, kwargs, error, guide)
            if error.location or not error.sites:
                raise
            lines = {part["name"]: part["line"] for part in self.latent_sites(model, args, kwargs)}
            line = next((lines[name] for name in error.sites if lines.get(name)), "")
            raise error.located("", line) from None
        except (ArithmeticError, AssertionError, AttributeError) as error:
            self._explain_arguments(model, args, kwargs, error)
            raise
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            self._explain_arguments(model, args, kwargs, error)
            if self.invalid_message in str(error):
                self.refuse_nonfinite_inputs(model, args, kwargs, error)
                explain_parameter(error)
            self._explain_shapes(model, args, kwargs, error, guide)
            raise

    def _explain_arguments(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception
    ) -> None:
        """Raise an error about the arguments of the model, if they are the cause."""
        if isinstance(error, ZeroDivisionError | AssertionError):
            self.refuse_empty_inputs(model, args, kwargs, error)
        if isinstance(error, TypeError):
            check_call(self.function(model), args, kwargs, "its evaluation")
        if (site := REPEATED.search(str(error))) is not None:
            raise UnsupportedMoments(
                f"two sites of the program are named '{site[1]}': give each a name of its own"
            ) from error
        if isinstance(error, IndexError) and (found := BEYOND.search(str(error))) is not None:
            raise UnsupportedMoments(
                f"an index of the model's data is {found[1]}, of {found[2]} entries: count groups "
                "from 0, and give the model a plate of all groups, those to be predicted too",
                location=raising_line(error),
            ) from error
        if NO_INDEX.search(str(error)):
            dtypes = (f"{name} {part.dtype}" for name, part in self.arrays(model, args, kwargs))
            raise UnsupportedMoments(
                f"an array that the model takes as an index or as labels has another type than "
                f"that of whole numbers ({', '.join(dtypes)}): pass group numbers and labels as "
                "int64, as by column.astype('int64') or tensor.long()",
                location=raising_line(error),
            ) from error
        if (site := UNOBSERVED.search(str(error))) is not None:
            raise UnsupportedMoments(
                f"site '{site[1]}' is discrete and has no observations: pass y, the argument that "
                "the model gives to its obs=, or marginalise it in the model if it is latent",
                sites=site.groups(),
                remedy=f"pass y; if it is latent, {discrete_remedy(self.framework)}",
            ) from error
        for name, argument in named_arguments(self.function(model), args, kwargs).items():
            self._refuse_foreign(name, argument, error)

    def _refuse_foreign(self, name: str, argument: Any, error: Exception) -> None:
        """Raise UnsupportedMoments for an array of another library."""
        for part in self.leaves(argument):
            if isinstance(part, self.own) or not (is_frame(part) or hasattr(part, "__array__")):
                if isinstance(part, str) and isinstance(argument, list):
                    numeric(name, np.asarray(argument))
                continue
            if isinstance(part, np.ndarray):
                numeric(name, part)
            numbers = f"{name}.to_numpy()" if hasattr(part, "to_numpy") else name
            raise UnsupportedMoments(
                f"argument '{name}' of the model is a {type(part).__module__.partition('.')[0]} "
                f"{type(part).__name__}, not an array of {self.framework}",
                remedy=f"pass {self.as_array}({numbers}); fit and the other verbs do so themselves",
            ) from error

    def _explain_shapes(
        self,
        model: Callable,
        args: tuple,
        kwargs: dict,
        error: Exception,
        guide: Callable | None,
    ) -> None:
        if isinstance(error, self.shape_errors):
            self._refuse_weights_in_plates(model, args, kwargs, error)
        if not SHAPES.match(str(error)):
            return
        trained = shapes_of(self.latent_sites(guide, args, kwargs) if guide else ())
        self._explain_latent_rows(model, args, kwargs, error, trained)
        shapes = {name: part.shape for name, part in self.arrays(model, args, kwargs)}
        headline = str(error).partition("\n")[0].rstrip(".")
        sites = shapes_of(self.latent_sites(model, args, kwargs))
        cure = other_columns(shapes, sites, trained, headline)
        if not cure and getattr(error, "remedy", None):
            return
        shown = ", ".join(f"{name} {[*shape]}" for name, shape in shapes.items())
        different = len({shape[0] for shape in shapes.values() if shape}) > 1
        cures = "pass as many rows in each" if different else "give each its shape in training"
        raise UnsupportedMoments(
            f"arrays do not fit together ({headline}) where the model's arguments are {shown}: "
            f"{cure or cures}",
            location=raising_line(error),
        ) from error

    def _explain_latent_rows(
        self,
        model: Callable,
        args: tuple,
        kwargs: dict,
        error: Exception,
        trained: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Raise UnsupportedMoments if a latent site has an element for every row of a training."""
        rows = {part.shape[0] for _, part in self.arrays(model, args, kwargs) if part.shape}
        headline = str(error).partition("\n")[0]
        sizes = {int(size) for size in _inner(headline) or re.findall(r"\d+", headline)} - {1}
        of_site = getattr(error, "sites", ())
        if len(rows) != 1:
            return
        (here,) = rows
        twice = self._shapes_for_twice_the_rows(model, args, kwargs, here)
        for site in self.latent_sites(model, args, kwargs):
            name, shape = site["name"], _shape(site)
            by_row = twice.get(name, ()) == tuple(2 * n if n == here else n for n in shape)
            is_trained = not trained or name in trained  # unlike what is to be predicted
            if not (is_trained and by_row and here in {*shape} & sizes and sizes - rows):
                continue
            if of_site and name not in of_site:
                continue
            plates = [f.name for f in site["cond_indep_stack"] if f.size in rows]
            where = f"of plate '{plates[0]}'" if plates else "of the data"
            raise UnsupportedMoments(
                f"latent site '{name}' has an element for every row {where}, not of {here} other "
                "rows: train with these rows too, their observations hidden by a mask, or predict "
                f"the rows of the training ({headline})",
                sites=[name],
                location=site["line"] or raising_line(error),
            ) from error

    def _shapes_for_twice_the_rows(
        self, model: Callable, args: tuple, kwargs: dict, rows: int
    ) -> dict[str, tuple[int, ...]]:
        """Return the shapes of latent sites where each row of the arguments comes twice."""
        twice = np.tile(np.arange(rows), 2)

        def repeated(leaf: Any) -> Any:
            is_of_rows = isinstance(leaf, self.own) and [*getattr(leaf, "shape", ())][:1] == [rows]
            return leaf[twice] if is_of_rows else leaf

        return shapes_of(self.latent_sites(model, *self.mapped((args, kwargs), repeated)))

    def refuse_empty_inputs(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception
    ) -> None:
        """Raise UnsupportedMoments if an input has no elements."""
        for name, array in self.arrays(model, args, kwargs):
            if 0 in array.shape:
                raise UnsupportedMoments(
                    f"the batch is empty: input '{name}' has shape {tuple(array.shape)}, and a "
                    "plate needs an element",
                    remedy="skip empty batches, and pass at least one row",
                ) from error

    def refuse_nonfinite_inputs(
        self, model: Callable, args: tuple, kwargs: dict, error: Exception | None = None
    ) -> None:
        """Raise UnsupportedMoments if an input has NaN or infinite elements."""
        for name, array in self.arrays(model, args, kwargs):
            self.refuse_infinite(f"input '{name}' of the model", self.known(array), error)

    def refuse_infinite_data(self, name: str, site: Any) -> None:
        """Raise UnsupportedMoments if a site's observations are NaN or infinite."""
        self.refuse_infinite(f"the data of observed site '{name}'", self.known(site["value"]))

    def explain_infinite_loss(
        self, sites: Mapping[str, Any], model: Callable, args: tuple, kwargs: dict
    ) -> None:
        """Raise UnsupportedMoments if data made a loss NaN or infinite."""
        for name, site in sites.items():
            if site["type"] == "sample" and site["is_observed"]:
                self.refuse_infinite_data(name, site)
        self.refuse_nonfinite_inputs(model, args, kwargs)

    def explain_predictions(
        self, predictions: Mapping[str, Any], model: Callable, args: tuple, kwargs: dict
    ) -> None:
        """Raise UnsupportedMoments if data made a prediction NaN."""
        for prediction in predictions.values():
            mean = self.known(prediction.mean)
            if mean is not None and np.isnan(mean).any():
                self.refuse_nonfinite_inputs(model, args, kwargs)

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


def shapes_of(sites: Iterable[Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of sites by name."""
    return {site["name"]: _shape(site) for site in sites}


def _shape(site: Any) -> tuple[int, ...]:
    return (*site["fn"].batch_shape, *site["fn"].event_shape)


def _inner(headline: str) -> tuple[str, ...]:
    """Return the sizes of two axes that do not contract; empty for other errors."""
    found = INNER.search(headline)
    return tuple(filter(None, found.groups())) if found else ()


def other_columns(
    arrays: Mapping[str, tuple[int, ...]],  # shapes of the arguments
    sites: Mapping[str, tuple[int, ...]],  # shapes of the latent sites for these arguments
    trained: Mapping[str, tuple[int, ...]],  # and of the guide, if it is known
    headline: str,  # of an error about shapes
) -> str:
    """Return a sentence on an argument that has other columns; empty if none has."""
    columns = {name: shape[-1] for name, shape in arrays.items() if len(shape) > 1}
    changed = [
        (now, before)
        for name, shape in sites.items()
        for now, before in zip(shape, trained.get(name, ()), strict=False)
        if now != before
    ]
    for name, count in columns.items():
        if before := next((before for now, before in changed if now == count), None):
            return (
                f"{name} has {count} columns, and had {before} in the training: pass the same "
                "columns, in the same order"
            )
        inner = _inner(headline)
        if inner[:1] == (str(count),):
            return (
                f"{name} has {count} columns, where weights of the model take {inner[1]}: "
                "pass the columns of the training, in the same order"
            )
    return ""


def explain_parameter(error: Exception) -> None:
    """Raise ValueError with a remedy for a parameter that a distribution does not take."""
    text = str(error)
    found = INVALID.search(text) or INVALID_IN_NUMPYRO.search(text)
    if found is None or found["name"] == "loc":
        return
    remedy = "make it positive, as by exp or softplus of what may be negative"
    if found["name"] in ("probs", "logits"):
        remedy = "pass logits= in place of probabilities, or a sigmoid of what is no probability"
    raise ValueError(
        f"{found['family']} got an invalid parameter '{found['name']}': {remedy}\n{text}"
    ) from error


def named_arguments(function: Callable, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Return a call's arguments by parameter, or by position."""
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{f"argument {i}": argument for i, argument in enumerate(args)}, **kwargs}
