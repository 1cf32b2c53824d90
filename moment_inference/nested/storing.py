"""A posterior by nested inference as a tree of dictionaries and arrays, for files."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.cumulant import Corrections
from moment_inference.nested.exploration.composite import Composite
from moment_inference.nested.exploration.extent import Extent
from moment_inference.nested.exploration.lattice import Lattice
from moment_inference.nested.exploration.mode import Mode
from moment_inference.nested.exploration.single import SinglePoint
from moment_inference.nested.given.selection import NestedHost, Selection
from moment_inference.nested.grid import Grid
from moment_inference.nested.inference import Inference
from moment_inference.nested.sparse import Pattern, Sparse
from moment_inference.optimisation.storage.files import StoredFileError

PARTS = ("selection", "uncorrected", "grid", "conditional", "corrections", "weights")
KINDS: tuple[Any, ...] = (Composite, Conditional, Corrections, Extent, Grid, Lattice, Mode)
KINDS += (Selection, SinglePoint, Sparse)
BY_NAME = {kind.__name__: kind for kind in KINDS}
KIND = "kind"  # of the object that a dictionary stands for


def tree_of(inference: Inference, digest: str) -> dict[str, Any]:
    """Return what a file holds, with a digest of the data; there are no parameters."""
    parts = {name: _packed(getattr(inference, name)) for name in PARTS}
    return {"parameters": {}, "nested": parts, "data": digest}


def inference_of(tree: dict[str, Any], host: NestedHost, digest: str, path: Any) -> Inference:
    """Return what a file holds, of a model and its data; raise if the data are others."""
    if tree.get("data") != digest:
        raise StoredFileError(
            "is of other data", path=path, remedy="load it with the arguments that nested had"
        )
    try:
        parts = {name: _unpacked(tree["nested"][name]) for name in PARTS}
    except (KeyError, TypeError) as error:
        cause = f"does not hold a posterior of this version: {error}"
        raise StoredFileError(cause, path=path, remedy="save it again") from error
    chosen: Selection = parts["selection"]
    model = host.given(chosen.hyperparameters, chosen.field, chosen.likelihoods)
    return Inference(model=model, **parts)


def _names(kind: Any) -> list[str]:
    """Return the names of the parts of a dataclass or a named tuple."""
    return [each.name for each in fields(kind)] if is_dataclass(kind) else [*kind._fields]


def _packed(value: Any) -> Any:
    if isinstance(value, Pattern):
        return {KIND: "Pattern", "keys": value.keys, "shape": tuple(value.shape)}
    if type(value) in KINDS:
        parts = {name: _packed(getattr(value, name)) for name in _names(type(value))}
        return {KIND: type(value).__name__, **parts}
    if isinstance(value, list | tuple):
        return type(value)(map(_packed, value))
    if isinstance(value, np.generic):
        return value.item()
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value


def _unpacked(tree: Any) -> Any:
    if isinstance(tree, list | tuple):
        return type(tree)(map(_unpacked, tree))
    if not isinstance(tree, dict):
        return tree
    parts = {name: _unpacked(part) for name, part in tree.items() if name != KIND}
    if tree[KIND] == "Pattern":
        return Pattern.of_keys(**parts)
    return BY_NAME[tree[KIND]](**parts)
