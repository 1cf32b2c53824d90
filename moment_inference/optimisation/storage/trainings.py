"""Stored trainings and checkpoints; the header tells their model and guide."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from moment_inference.optimisation.outcome import Course, Fit
from moment_inference.optimisation.storage.files import StoredFileError, pack, read, unpack, write
from moment_inference.optimisation.training import Trainer, TrainingPlan, train


def signature_of(sites: Mapping[str, Any], inner: Callable[[Any], Any]) -> Signature:
    """Return family, event shape and whether it is observed, by site."""
    return {
        name: {
            "family": type(inner(site["fn"])).__name__,
            "event": [int(size) for size in site["fn"].event_shape],
            "observed": bool(site["is_observed"]),
        }
        for name, site in sites.items()
    }


def constants_of(
    sites: Mapping[str, Any],
    parameters: Mapping[str, Mapping[str, np.ndarray]],  # of distributions, that are certain
    arguments: Iterable[np.ndarray],
) -> Constants:
    """Return the constants of a model's distributions, by site and parameter.

    Those that differ from row to row, and those that an array of the arguments gives, are
    data.
    """
    data = [np.unique(array)[0] for array in arguments if array.ndim and _is_uniform(array)]
    result = {}
    for name, arrays in parameters.items():
        has_rows = bool(sites[name]["is_observed"] or sites[name]["cond_indep_stack"])
        flat = {key: _shortened(array) for key, array in arrays.items()}
        result[name] = {
            key: array.tolist()
            for key, array in flat.items()
            if 1 <= array.size <= (1 if has_rows else MOST_CONSTANTS)
            and not (array.size == 1 and array[0] in data)
        }
    return result


def _shortened(array: np.ndarray) -> np.ndarray:
    """Return a flat array, of one number if all are equal."""
    flat = array.reshape(-1).astype(float)
    return flat[:1] if _is_uniform(flat) else flat


def _is_uniform(array: np.ndarray) -> bool:
    return array.size > 0 and bool((array == array.flat[0]).all())


def density_as_text(sites: Mapping[str, Any], observed: bool) -> str:
    """Return a trace's log density as text, with or without the observed sites."""
    parts = [
        site["fn"].log_prob(site["value"]).sum()
        for site in sites.values()
        if observed or not site["is_observed"]
    ]
    return f"{float(sum(parts)):.5g}"


def guide_name(guide: Any) -> str:
    """Return the name of the guide's class, or of the function that it is."""
    while isinstance(guide, partial):
        guide = guide.func
    return getattr(guide, "__name__", type(guide).__name__)


class StoredTraining:
    """Reader and writer of the parameters of a training of one model and guide."""

    def __init__(
        self,
        front_end: str,  # name of the front end
        packages: Iterable[str],  # whose versions are stored
        guide: Any,
        sites: Sites,  # of the model
        to_array: Callable[[Any], Any],  # to NumPy; None for what is no array
        objective: dict[str, Any] | None = None,  # the record of what it was trained by
    ) -> None:
        self.front_end, self.guide, self.to_array = front_end, guide_name(guide), to_array
        (self.model, self.constants), self.objective = sites, objective
        self.posterior = settings_of(guide)
        versions = {name: importlib.metadata.version(name) for name in packages}
        self.versions = {"python": platform.python_version(), **versions}

    def write(self, path: Any, tree: dict[str, Any], settings: dict[str, Any]) -> None:
        """Write a file with a tree of parameters; empty settings stand for no fit."""
        # The tree has "parameters", and of a checkpoint also "course", "trainer" and
        # "kept".
        skeleton, arrays = pack(_plain(tree), self.to_array)
        header = {
            "versions": self.versions,
            "host": self.front_end,
            "guide": self.guide,
            "posterior": self.posterior,
            "model": self.model,
            "constants": self.constants,
            "objective": self.objective,
            "settings": settings,
            "tree": skeleton,
        }
        write(path, header, arrays)

    def read(
        self, path: Any, settings: dict[str, Any] | None = None, require_checkpoint: bool = True
    ) -> dict[str, Any]:
        """Return the tree of a file, with NumPy arrays; raise if front end, guide or model differ.

        Settings of None accept any; ``require_checkpoint`` raises unless it is a checkpoint.
        The record of the objective is in the tree as ``"objective"``, what the file knows of
        the model's sites as ``"sites"``.
        """
        header, arrays = read(path)
        self._check(path, header)
        if settings is not None:
            _check_settings(path, header["settings"], settings)
        tree = unpack(header["tree"], arrays, path=path)
        _check_tree(path, tree, require_checkpoint)
        sites = header["model"], header.get("constants", {})
        return {**tree, "objective": header.get("objective"), "sites": sites}

    def _check(self, path: Any, header: dict[str, Any]) -> None:
        kinds = {"host": str, "guide": str, "model": dict, "settings": dict}
        for name, kind in kinds.items():
            if not isinstance(header.get(name), kind):
                raise StoredFileError(f"is no stored training: its header has no {name}", path=path)
        if header["host"] != self.front_end:
            raise StoredFileError(
                f"was written by {header['host']}, not by {self.front_end}",
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
        check_constants(path, header.get("constants", {}), self.constants)


def _check_settings(path: Any, stored: dict[str, Any], current: dict[str, Any]) -> None:
    """Raise StoredFileError if a fit would go on with other settings."""
    for name in sorted({*stored, *current}):
        if stored.get(name) != current.get(name):
            raise StoredFileError(
                f"is a checkpoint of another fit: {name} was {stored.get(name)!r}, and is "
                f"{current.get(name)!r} now",
                path=path,
                remedy="fit with the same arguments, or take another path to begin anew",
            )


def _check_tree(path: Any, tree: Any, require_checkpoint: bool) -> None:
    if not isinstance(tree, dict) or not isinstance(tree.get("parameters"), dict):
        raise StoredFileError("is no stored training: it has no parameters", path=path)
    for name, array in tree["parameters"].items():
        if not isinstance(array, np.ndarray):
            raise StoredFileError(f"parameter {name!r} is no array", path=path)
    if require_checkpoint and not {"course", "trainer", "kept"} <= tree.keys():
        raise StoredFileError(
            "holds parameters, and no state of a fit to go on from",
            path=path,
            remedy="load it, and pass what load returned as start=",
        )


def flattened(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested parameters by path: ``{"net": {"w": 1}}`` as ``{"net/w": 1}``."""
    result: dict[str, Any] = {}
    for name, part in tree.items():
        inner = flattened(part) if isinstance(part, Mapping) else None
        result |= {name: part} if inner is None else {f"{name}/{key}": inner[key] for key in inner}
    return result


def check_parameters(path: Any, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise StoredFileError if the stored parameters have other names or shapes."""
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
    """Return a hash of arrays, including their dtypes and shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()[:16]


def course_to_dict(course: Course) -> dict[str, Any]:
    """Return the fields of a course as a dictionary, with the losses as an array."""
    parts = {part.name: getattr(course, part.name) for part in fields(Course)}
    return {**parts, "losses": np.asarray(course.losses, np.float64)}


def fill_course_from_dict(course: Course, tree: Mapping[str, Any]) -> None:
    """Set the fields of a course from the dictionary that :func:`course_to_dict` made."""
    for part in fields(Course):
        setattr(course, part.name, tree[part.name])
    course.losses = np.asarray(tree["losses"]).tolist()


def _plain(tree: Any) -> Any:
    """Convert libraries' subclasses of dictionaries, lists, tuples, numbers."""
    if isinstance(tree, dict):
        return {key: _plain(part) for key, part in tree.items()}
    if isinstance(tree, list):
        return [*map(_plain, tree)]
    if isinstance(tree, tuple):
        return tuple(map(_plain, tree))
    if isinstance(tree, np.generic):
        return tree.item()
    return tree


# By site and parameter of its distribution: one number, or those of a vector.
Constants = dict[str, dict[str, list[float]]]
MOST_CONSTANTS = 64  # of a vector that is stored

Signature = dict[str, dict[str, Any]]  # by site: "family", "event" and "observed"
Sites = tuple[Signature, Constants]


def settings_of(guide: Any) -> dict[str, Any]:
    """Return a guide's settings beside its parameters, by part if it has some."""
    if hasattr(guide, "fixed_settings"):
        return guide.fixed_settings()
    parts = enumerate(guide) if isinstance(guide, Iterable) else ()
    settings_by_part = ((str(key), settings_of(part)) for key, part in parts)
    return {key: settings for key, settings in settings_by_part if settings}


def check_posterior(path: Any, stored: Any, current: dict[str, Any]) -> None:
    """Raise StoredFileError if the guide's settings differ."""
    stored = stored if isinstance(stored, dict) else {}
    for name in sorted({*stored, *current}, key=lambda n: (not (n in stored and n in current), n)):
        if stored.get(name) != current.get(name):
            options = ", ".join(f"{name}={value!r}" for name, value in stored.items())
            raise StoredFileError(
                f"is of another posterior: {name} of the guide was {stored.get(name)!r}, and is "
                f"{current.get(name)!r} here",
                path=path,
                remedy=f"load it into a guide with the same settings ({options or 'none stored'})",
            )


def check_model(path: Any, stored: Signature, current: Signature) -> None:
    """Raise StoredFileError if models differ, but for what they observe."""
    # Sites that the stored model observed may be absent here.
    missing = [
        name for name, site in stored.items() if name not in current and not site.get("observed")
    ]
    new = [name for name in current if name not in stored]
    remedy = "load it with the model that it was trained with"
    if missing or new:
        parts = [
            f"its model has the latent site {', '.join(map(repr, missing))}" if missing else "",
            f"this one has {', '.join(map(repr, new))} besides" if new else "",
        ]
        what = "; ".join(filter(None, parts))
        raise StoredFileError(f"is of another model: {what}", path=path, remedy=remedy)
    for name, site in current.items():
        for part in ("family", "event"):
            if stored[name].get(part) != site[part]:
                raise StoredFileError(
                    f"is of another model: the {_PARTS[part]} of site '{name}' is "
                    f"{stored[name].get(part)} there and {site[part]} here",
                    path=path,
                    remedy=remedy,
                )


def check_constants(path: Any, stored: Constants, current: Constants) -> None:
    """Raise StoredFileError if constants of distributions differ, where both models have them."""
    for site in stored.keys() & current.keys():
        for name in sorted(stored[site].keys() & current[site].keys()):
            there, here = stored[site][name], current[site][name]
            if len(there) == len(here) and not np.allclose(there, here, 1e-4, 0, equal_nan=True):
                raise StoredFileError(
                    f"is of another model: {name} of site '{site}' is {_numbers(there)} there and "
                    f"{_numbers(here)} here",
                    path=path,
                    remedy="load it with the model that it was trained with; where the model "
                    f"computes {name} from its arguments, with the arguments of the training",
                )


def _numbers(values: list[float]) -> str:
    text = ", ".join(f"{value:.5g}" for value in values[:4])
    return text if len(values) == 1 else f"[{text}{', …' if len(values) > 4 else ''}]"


_PARTS = {"family": "distribution", "event": "event shape"}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file of a fit, which resumes from the file if it exists."""

    path: Path
    stored: StoredTraining  # reads and writes the file
    settings: dict[str, Any]  # the fit's; the file must have the same
    parameters: Callable[[Any], dict[str, Any]]  # by name, from what the trainer keeps

    def train(self, trainer: Trainer, course: Course, plan: TrainingPlan) -> None:
        """Train, starting from the file's state if the file exists."""

        def write(course: Course, kept: Any) -> None:
            tree = {
                "parameters": self.parameters(trainer.snapshot() if kept is None else kept),
                "course": course_to_dict(course),
                "trainer": trainer.state(),
                "kept": kept,
            }
            self.stored.write(self.path, tree, self.settings)

        kept = self._resume(trainer, course) if self.path.exists() else None
        train(trainer, course, replace(plan, write_checkpoint=write), kept)

    def _resume(self, trainer: Trainer, course: Course) -> Any:
        """Restore course and trainer from the file, and return its best parameters."""
        tree = self.stored.read(self.path, self.settings)
        try:
            fill_course_from_dict(course, tree["course"])
            trainer.load_state(tree["trainer"])
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise StoredFileError(
                f"holds no state of this fit: {type(error).__name__}: {error}",
                path=self.path,
                remedy="take another path to begin anew",
            ) from error
        return tree["kept"]


def fit_of_file(tree: Mapping[str, Any], guide: Any, params: dict[str, Any], objective: Any) -> Fit:
    """Return the fit that the tree of a file tells."""
    fit = Fit(guide=guide, params=params, seconds={}, objective=objective, sites=tree["sites"])
    if "course" in tree:
        fill_course_from_dict(fit, tree["course"])
    return fit
