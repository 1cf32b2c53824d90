"""MomentTensor: a random value where Pyro and torch.nn expect a tensor.

It has no storage: an operation finds its moment rule in ``__torch_function__``, or it
raises UnsupportedMoments, in ``__torch_dispatch__`` at the latest.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import FrameType
from typing import Any

import torch

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.values import Composite, Deferred, Gaussian, Value
from pyro_moments._host import VMAP_FRAME, call_plainly, make_shell, tree_leaves, tree_map
from pyro_moments.evaluation.precision import (
    full_precision,
    is_autocast_on,
    mixed_precision_error,
    to_float32,
)
from pyro_moments.evaluation.refused import HOLDS, Refused
from pyro_moments.rules.table import IN_PLACE, RULES, VIEWS, MeanCheck

METADATA = {
    getattr(torch.Tensor, name).__get__
    for name in "shape dtype device ndim layout requires_grad is_leaf grad_fn grad is_nested "
    "is_sparse is_quantized is_meta is_cuda is_cpu is_mps names _base".split()
    if hasattr(getattr(torch.Tensor, name, None), "__get__")
} | {
    getattr(torch.Tensor, name)
    for name in "size dim ndimension numel nelement __len__ is_floating_point is_complex "
    "stride is_contiguous element_size storage_offset __hash__ get_device".split()
}
METADATA |= {torch.is_floating_point, torch.is_complex, torch.numel}


def maps_now() -> bool:
    """Return whether ``torch.vmap``, two frames above, looks at a tensor."""
    return _is_of_vmap(sys._getframe(2))


def is_around() -> bool:
    """Return whether ``torch.vmap`` is among the callers; slow, so for failures only."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (_is_of_vmap(frame) and frame.f_code.co_name == VMAP_FRAME[1]):
        frame = frame.f_back
    return frame is not None


def _is_of_vmap(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == VMAP_FRAME[0]


def vmap_error(sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for values of these latent sites under ``torch.vmap``."""
    return UnsupportedMoments(
        "a function of random values is mapped over an axis, which the moment rules cannot see",
        sites=sites,
        remedy="call it on the whole batch: x @ w and functions of torch map all rows at once; or "
        "on each row in a loop, torch.stack([f(row) for row in x])",
        operation="torch.vmap",
        location=user_line(),
    )


# Called with every operation on random tensors and its result while a program is
# recorded.
OBSERVER: ContextVar[Callable[[Callable, Any], None] | None] = ContextVar("observer", default=None)


_VALUES = (Gaussian, Deferred, Composite, MeanCheck, Refused)
_SEQUENCES = (tuple, list)


class Storage:
    """The memory that a tensor shares with its views; it counts changes in place."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


class MomentTensor(torch.Tensor):
    """Tensor-like shell of a random value.

    Args:
        value: a Gaussian, a deferred function of one, or the outcome of a comparison.
        storage: the memory of the tensor that it is a view of; by default its own.
    """

    value: Value | Composite | MeanCheck | Refused
    storage_: Storage
    version_: int

    @staticmethod
    def __new__(
        cls, value: Value | Composite | MeanCheck | Refused, storage: Storage | None = None
    ) -> MomentTensor:
        """Make the shell, which has the value's shape, dtype and device, and no storage."""
        like = _template_tensor(value)
        shape = value.shape if isinstance(value, Composite) else like.shape
        kind = _Empty if 0 in shape else cls
        shell = make_shell(kind, shape, dtype=like.dtype, device=like.device)
        shell.value, shell.storage_ = value, storage or Storage()
        shell.version_ = shell.storage_.version
        return shell

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Apply the moment rule of a function; raise UnsupportedMoments if there is none."""
        if func in METADATA:
            if maps_now():
                raise vmap_error(_sites(args))
            return call_plainly(func, args, kwargs or {})
        result = _result(func, args, kwargs or {})
        if (observer := OBSERVER.get()) is not None:
            observer(func, result)
        return result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Raise UnsupportedMoments for calls that bypassed ``__torch_function__``."""
        raise _no_rule(func, args)

    def __bool__(self) -> bool:
        """Raise: a program that branches on a random value has no moments."""
        if HOLDS.get() and errors.called_by("torch.distributions.constraints"):
            return True  # the validation of a distribution that will be drawn
        raise UnsupportedMoments(
            "the program branches on a random value",
            sites=self.value.sites,
            remedy="use torch.relu or torch.where with a certain condition, or draw the sites by "
            "naming them in sample_sites=",
            operation=name_of(torch.Tensor.__bool__),
            location=user_line(),
        )

    def __iter__(self):
        """Iterate over the slices of the leading axis."""
        return iter(_apply_rule(torch.Tensor.unbind, (self,), {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Return the shape and the latent sites; the moments are in ``value``."""
        return f"MomentTensor(shape={tuple(self.shape)}, sites={sorted(self.value.sites)})"

    def __format__(self, specification: str) -> str:
        """Return the repr; raise for a format, because a random value has no digits."""
        if specification:
            raise _no_rule(torch.Tensor.__format__, (self,))
        return repr(self)

    __hash__ = object.__hash__


def _operator(function: Callable) -> Callable:
    def operator(self: Any, other: Any) -> Any:
        return type(self).__torch_function__(function, (type(self),), (self, other))

    return operator


def _define_operators(kind: type[torch.Tensor]) -> None:
    """Give a class of tensors operators that raise TypeErrors.

    Torch's own turn every TypeError, hence UnsupportedMoments, into NotImplemented.
    """
    plain = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
    names = [prefix + name for name in plain for prefix in ("", "r", "i")]
    for name in [*names, "rdiv", "idiv", "eq", "ne", "lt", "le", "gt", "ge"]:
        function = getattr(torch.Tensor, f"__{name}__", None)
        if function is not None:
            setattr(kind, f"__{name}__", _operator(function))


class _Empty(MomentTensor):
    """A random tensor without elements: operations take a plain one in its place."""

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func in METADATA:
            return call_plainly(func, args, kwargs or {})
        args, kwargs = tree_map(_without_empty, (args, kwargs or {}))
        return func(*args, **kwargs)  # applies a rule if other operands are random


def _without_empty(argument: Any) -> Any:
    if type(argument) is not _Empty:
        return argument
    like = _template_tensor(argument.value)
    return torch.zeros(argument.value.shape, dtype=like.dtype, device=like.device)


_define_operators(MomentTensor)


class Shell(torch.Tensor):
    """Base of shells of draws: tensors with attributes of their own, and without storage."""

    tensor: torch.Tensor  # of the same shape, dtype and device

    @staticmethod
    def __new__(cls, like: torch.Tensor, **attributes: Any) -> Any:
        """Make the shell of a tensor."""
        shell = make_shell(cls, like.shape, dtype=like.dtype, device=like.device)
        vars(shell).update(attributes, tensor=like)
        return shell

    def __init__(self, *_: Any, **__: Any) -> None:
        """Do nothing: ``__new__`` has made the shell."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Serve calls that bypassed ``__torch_function__`` as it does."""
        return cls.__torch_function__(func, types, args, kwargs)

    __hash__ = object.__hash__


_define_operators(Shell)


def _template_tensor(value: Any) -> torch.Tensor:
    """Return a plain tensor of the value's dtype and device."""
    if isinstance(value, Gaussian):
        return value.mean
    if isinstance(value, MeanCheck):
        return value.outcome
    if isinstance(value, Refused):
        return value.template
    return value.base.mean if isinstance(value, Deferred) else value.source.mean


def unwrap(argument: Any) -> Any:
    """Replace every MomentTensor in an argument by its value."""
    kind = type(argument)
    if issubclass(kind, MomentTensor):
        if argument.version_ != argument.storage_.version:
            raise UnsupportedMoments(
                "this tensor shares its memory with one that was changed in place",
                sites=argument.value.sites,
                remedy="use the operation that is not in place, e.g. inplace=False or h = h + 1",
            )
        return argument.value
    if kind is tuple or kind is list:
        return kind(map(unwrap, argument))
    return argument


def wrap(result: Any, storage: Storage | None = None) -> Any:
    """Put every value of a result into a MomentTensor, a view if storage is given."""
    if isinstance(result, _VALUES):
        return MomentTensor(result, storage)
    if isinstance(result, _SEQUENCES):
        return type(result)(wrap(item, storage) for item in result)
    return result


def _result(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Apply a rule; where refusals are held, return what has no moments instead of raising."""
    if not HOLDS.get():
        return _apply_rule(func, args, kwargs)
    operands = [part for part in tree_leaves((args, kwargs)) if isinstance(part, MomentTensor)]
    known = [part.value.refusal for part in operands if isinstance(part.value, Refused)]
    try:
        if not known:
            return _apply_rule(func, args, kwargs)
    except UnsupportedMoments as error:
        known = [error]
    return _refused(func, args, kwargs, known[0])


def _refused(func: Callable, args: tuple, kwargs: dict, refusal: UnsupportedMoments) -> Any:
    """Return the result of a function on templates, without moments."""
    is_in_place = func in IN_PLACE or bool(kwargs.get("inplace"))
    if func is torch.Tensor.__setitem__ or (is_in_place and type(args[0]) is not MomentTensor):
        raise refusal
    try:
        with torch.no_grad():
            templates = tree_map(_plain_template, (args, kwargs))
            result = func(*templates[0], **templates[1])
    except Exception:
        raise refusal from None
    marked = tree_map(lambda part: _marked(part, refusal), result)
    return _overwrite(args[0], marked.value) if is_in_place else marked


def _plain_template(argument: Any) -> Any:
    """Return a certain tensor in place of a random one, which may be changed."""
    if not isinstance(argument, MomentTensor):
        return argument
    value = getattr(argument.value, "at_mean", None)
    value = _template_tensor(argument.value) if value is None else value
    return value.detach().expand(argument.shape).clone()


def _marked(part: Any, refusal: UnsupportedMoments) -> Any:
    if not isinstance(part, torch.Tensor):
        raise refusal  # a number that a program would compute with
    if part.dtype is torch.bool:
        # The validation of distributions asks, and a template need not be in the support.
        return MomentTensor(MeanCheck(torch.ones_like(part), frozenset(refusal.sites)))
    return MomentTensor(Refused(part, refusal))


def _apply_rule(func: Callable, args: tuple, kwargs: dict) -> Any:
    rule = RULES.get(func)
    if rule is None:
        raise _no_rule(func, (*args, *kwargs.values()))
    if is_autocast_on():
        args, kwargs = to_float32(args), to_float32(kwargs)
        with full_precision():
            return _apply_rule(func, args, kwargs)
    try:
        named = {name: unwrap(part) for name, part in kwargs.items()} if kwargs else {}
        result = rule(*map(unwrap, args), **named)
        if func in IN_PLACE or named.get("inplace"):
            return _overwrite(args[0], result)
    except UnsupportedMoments as refusal:
        sites = _sites((*args, *kwargs.values()))
        raise refusal.located(name_of(func), user_line(), sites) from None
    except RuntimeError as error:
        numbered = {f"operand {i + 1}": argument for i, argument in enumerate(args)}
        if (mixed := mixed_precision_error(error, {**numbered, **kwargs})) is None:
            raise
        sites = _sites((*args, *kwargs.values()))
        raise mixed.located(name_of(func), user_line(), sites) from error
    view = func in VIEWS and args and type(args[0]) is MomentTensor
    return wrap(result, args[0].storage_ if view else None)


def _overwrite(target: Any, result: Any) -> MomentTensor:
    """Change a tensor in place; views of its memory raise UnsupportedMoments now."""
    if type(target) is not MomentTensor or target.value.shape != result.shape:
        raise random_in_place(result.sites)
    target.value = result
    target.storage_.version += 1
    target.version_ = target.storage_.version
    return target


def random_in_place(sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for a tensor that would become random in place."""
    return UnsupportedMoments(
        "a tensor cannot become random, or change its shape, in place",
        sites=sites,
        remedy="use the operation that is not in place, e.g. out = out + h, or inplace=False",
    )


def name_of(func: Callable) -> str:
    """Return the name by which users call a function of torch."""
    try:
        name = torch.overrides.resolve_name(func)
    except Exception:  # resolve_name raises on functions it does not know, such as aten overloads
        name = None
    return name or (func.__name__ if inspect.isfunction(func) else str(func))


def _sites(argument: Any) -> frozenset[str]:
    tensors = (part for part in tree_leaves(argument) if isinstance(part, MomentTensor))
    return frozenset().union(*(tensor.value.sites for tensor in tensors))


def _no_rule(func: Callable, args: tuple) -> UnsupportedMoments:
    if is_around():
        return vmap_error(_sites(args))
    return UnsupportedMoments(
        "this operation has no moment rule",
        sites=_sites(args),
        remedy="use operations of the supported table, register one with "
        "@pyro_moments.moment_rule, or draw the sites by naming them in "
        "sample_sites=",
        operation=name_of(func),
        location=user_line(),
    )


def user_line() -> str:
    """Return the user's innermost file and line, and the module that runs there."""
    frames = list(_frames())
    user = next((frame for frame in frames if not errors.is_library(frame)), None)
    line = f"{user.f_code.co_filename}:{user.f_lineno}" if user else "unknown"
    module = next((name for frame in frames if (name := _module_name(frame))), None)
    return f"{line} in {module}" if module else line


def _frames():
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module_name(frame: FrameType) -> str | None:
    owner = frame.f_locals.get("self")
    if not isinstance(owner, torch.nn.Module) or frame.f_code.co_name != "forward":
        return None
    label = getattr(owner, "_pyro_name", "")
    return f"{type(owner).__name__} {label}".strip() + ".forward"
