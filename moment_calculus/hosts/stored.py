"""What stands in the header of a stored training, and whether it is of the same model and guide."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from moment_calculus.hosts.identity import (
    Signature,
    check_model,
    check_posterior,
    settings_of,
)
from moment_calculus.optimisation.outcome import Course
from moment_calculus.storage.errors import StoredFileError
from moment_calculus.storage.files import read, write
from moment_calculus.storage.trees import pack, unpack


def signature_of(sites: Mapping[str, Any], inner: Callable[[Any], Any]) -> Signature:
    """What is fixed of the sites of a model, whatever its data.

    Args:
        sites: as the host's traces have them, by name.
        inner: takes wrappers off a distribution.
    """
    return {
        name: {
            "family": type(inner(site["fn"])).__name__,
            "event": [int(size) for size in site["fn"].event_shape],
            "observed": bool(site["is_observed"]),
        }
        for name, site in sites.items()
    }


def joint_density(sites: Mapping[str, Any], observed: bool) -> str:
    """Log density of the sites of a model at their values, as it stands in settings.

    Args:
        sites: as the host's traces have them, by name.
        observed: whether what is observed counts, or the prior alone.
    """
    parts = [
        site["fn"].log_prob(site["value"]).sum()
        for site in sites.values()
        if observed or not site["is_observed"]
    ]
    return f"{float(sum(parts)):.5g}"


def guide_name(guide: Any) -> str:
    """The class of a guide, or the name of a function.

    Args:
        guide: the guide.
    """
    while isinstance(guide, partial):
        guide = guide.func
    return getattr(guide, "__name__", type(guide).__name__)


class StoredTraining:
    """Reads and writes the parameters of a training, and checks whose they are.

    Args:
        host: name of the front end.
        packages: those whose versions are written down.
        guide: the guide.
        model: its sites.
        to_array: makes a NumPy array of one of the host; None of anything else.
    """

    def __init__(
        self,
        host: str,
        packages: Iterable[str],
        guide: Any,
        model: Signature,
        to_array: Callable[[Any], Any],
    ) -> None:
        self.host, self.guide, self.model, self.to_array = host, guide_name(guide), model, to_array
        self.posterior = settings_of(guide)
        found = {name: importlib.metadata.version(name) for name in packages}
        self.versions = {"python": platform.python_version(), **found}

    def write(self, path: Any, tree: dict[str, Any], settings: dict[str, Any]) -> None:
        """Write a file at once.

        Args:
            path: the file.
            tree: ``"parameters"``, and for checkpoints ``"course"``, ``"trainer"``, ``"kept"``.
            settings: of the fit; empty if it is none.
        """
        skeleton, arrays = pack(_plain(tree), self.to_array)
        header = {
            "versions": self.versions,
            "host": self.host,
            "guide": self.guide,
            "posterior": self.posterior,
            "model": self.model,
            "settings": settings,
            "tree": skeleton,
        }
        write(path, header, arrays)

    def read(
        self, path: Any, settings: dict[str, Any] | None = None, whole: bool = True
    ) -> dict[str, Any]:
        """Read a file of the same host, guide and model; arrays are those of NumPy.

        Args:
            path: the file.
            settings: that it has to have; None for any.
            whole: whether it has to be a checkpoint.

        Raises:
            StoredFileError: naming what differs.
        """
        header, arrays = read(path)
        self._check(path, header)
        if settings is not None:
            _check_settings(path, header["settings"], settings)
        tree = unpack(header["tree"], arrays, lambda array: array, path=path)
        _check_tree(path, tree, whole)
        return tree

    def _check(self, path: Any, header: dict[str, Any]) -> None:
        kinds = {"host": str, "guide": str, "model": dict, "settings": dict}
        for name, kind in kinds.items():
            if not isinstance(header.get(name), kind):
                raise StoredFileError(f"is no stored training: its header has no {name}", path=path)
        if header["host"] != self.host:
            raise StoredFileError(
                f"was written by {header['host']}, not by {self.host}",
                path=path,
                remedy=f"load it with {header['host']}.load",
            )
        if header["guide"] != self.guide:
            raise StoredFileError(
                f"holds the parameters of a {header['guide']}, and the guide is a {self.guide}",
                path=path,
                remedy=f"load it into a {header['guide']}",
            )
        check_posterior(path, header.get("posterior"), self.posterior)
        if "tree" not in header:
            raise StoredFileError("is no stored training: its header has no tree", path=path)
        check_model(path, header["model"], self.model)


def _check_settings(path: Any, stored: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse to go on with other settings: the result would be that of neither."""
    for name in sorted({*stored, *current}):
        if stored.get(name) != current.get(name):
            raise StoredFileError(
                f"is a checkpoint of another fit: {name} was {stored.get(name)!r}, and is "
                f"{current.get(name)!r} now",
                path=path,
                remedy="fit with the same arguments, or take another path to begin anew",
            )


def _check_tree(path: Any, tree: Any, whole: bool) -> None:
    if not isinstance(tree, dict) or not isinstance(tree.get("parameters"), dict):
        raise StoredFileError("is no stored training: it has no parameters", path=path)
    for name, array in tree["parameters"].items():
        if not isinstance(array, np.ndarray):
            raise StoredFileError(f"parameter {name!r} is no array", path=path)
    if whole and not {"course", "trainer", "kept"} <= tree.keys():
        raise StoredFileError(
            "holds parameters, and no state of a fit to go on from",
            path=path,
            remedy="load it, and begin a fit from there",
        )


def flattened(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of modules, which are dictionaries themselves, with names like paths.

    Args:
        tree: parameters by name.

    Example:
        >>> flattened({"net": {"layer": {"kernel": 1}}, "scale": 2})
        {'net/layer/kernel': 1, 'scale': 2}
    """
    found: dict[str, Any] = {}
    for name, part in tree.items():
        inner = flattened(part) if isinstance(part, Mapping) else None
        found |= {name: part} if inner is None else {f"{name}/{key}": inner[key] for key in inner}
    return found


def check_parameters(path: Any, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Refuse parameters that are not those of model and guide.

    Args:
        path: the file.
        stored: in it, by name.
        current: those that model and guide make, by name; of them the shapes count.

    Raises:
        StoredFileError: naming the first that differs.
    """
    for name in sorted({*stored, *current}):
        if name not in stored:
            cause = f"has no parameter '{name}', which model and guide have"
        elif name not in current:
            cause = f"has the parameter '{name}', which model and guide do not have"
        elif stored[name].shape != tuple(np.shape(current[name])):
            there, here = [*stored[name].shape], [*np.shape(current[name])]
            cause = f"has the parameter '{name}' with the shape {there}, and not {here} as here"
        else:
            continue
        raise StoredFileError(
            cause,
            path=path,
            remedy="load it with the model and guide that it was trained with, and with their "
            "arguments, observations included",
        )


def data_digest(arrays: Iterable[np.ndarray]) -> str:
    """A number that other data do not have.

    Args:
        arrays: the data.
    """
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return found.hexdigest()[:16]


def course_tree(course: Course) -> dict[str, Any]:
    """What is stored of a course; the losses as an array.

    Args:
        course: of a training.
    """
    parts = {part.name: getattr(course, part.name) for part in fields(Course)}
    return {**parts, "losses": np.asarray(course.losses, np.float64)}


def fill_course(course: Course, tree: Mapping[str, Any]) -> None:
    """Go on with a course.

    Args:
        course: to be filled.
        tree: from :func:`course_tree`.
    """
    for part in fields(Course):
        setattr(course, part.name, tree[part.name])
    course.losses = np.asarray(tree["losses"]).tolist()


def _plain(tree: Any) -> Any:
    """Subclasses of dictionaries, lists and numbers, as libraries have them, as these."""
    if isinstance(tree, dict):
        return {key: _plain(part) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(_plain, tree)) if type(tree) in (list, tuple) else tuple(tree)
    if isinstance(tree, np.generic):
        return tree.item()
    return tree
