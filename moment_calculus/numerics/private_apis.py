"""The private APIs of torch and JAX below the front ends, each with the version checked.

A framework is imported only when one of its functions is called.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def is_transformed() -> bool:
    """Return whether torch.func or vmap is active (torch 2.13)."""
    import torch

    return torch._C._functorch.peek_interpreter_stack() is not None


def is_untraced() -> bool:
    """Return whether torch executes operations, not traces or records them (torch 2.13)."""
    import torch

    return torch._C._len_torch_dispatch_stack() == 0


def has_forward_derivatives() -> bool:
    """Return whether torch computes derivatives in forward mode (torch 2.13)."""
    import torch

    return torch.autograd.forward_ad._current_level >= 0


@contextlib.contextmanager
def autograd_inside_operation() -> Iterator[None]:
    """Turn autograd on where tracers and operations of torch turn it off (torch 2.13)."""
    import torch

    include = torch._C._dispatch_tls_local_include_set()
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "ADInplaceOrView"):
        exclude = exclude.remove(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        yield


def trace_of(array: Any) -> Any:
    """Return the trace that an array of JAX belongs to, None for any other array (JAX 0.10)."""
    return getattr(array, "_trace", None)


def is_traced(value: Any) -> bool:
    """Return whether JAX traces a value, so that its elements are not known (JAX 0.10)."""
    core = sys.modules.get("jax.core")  # tensors and numbers are asked too, where JAX is missing
    return core is not None and isinstance(value, core.Tracer)


def read(variable: Any, values: Mapping[Any, Any]) -> Any:
    """Return the value of a variable, or of a constant, in a traced program (JAX 0.10)."""
    from jax.extend.core import Literal

    return variable.val if isinstance(variable, Literal) else values[variable]


def is_constant(variable: Any) -> bool:
    """Return whether an operand or output of a traced program is a constant (JAX 0.10)."""
    from jax.extend.core import Literal

    return isinstance(variable, Literal)


def programs_inside(equation: Any) -> list[Any]:
    """Return the programs in the parameters of an equation, such as a call's (JAX 0.10)."""
    from jax.extend.core import jaxprs_in_params

    return list(jaxprs_in_params(equation.params))


def primitives_in(equations: Iterable[Any]) -> set[str]:
    """Return the names of primitives of equations, and of programs inside them (JAX 0.10)."""
    from jax.extend.core import jaxprs_in_params

    names, waiting = set(), list(equations)
    for equation in waiting:  # it grows
        names.add(equation.primitive.name)
        for program in jaxprs_in_params(equation.params):
            waiting += program.eqns
    return names


def without_dead_code(program: Any) -> Any:
    """Return a program without the equations that none of its outputs needs (JAX 0.10)."""
    from jax.interpreters.partial_eval import dce_jaxpr

    return dce_jaxpr(program, [True] * len(program.outvars), instantiate=True)[0]


def restricted(program: Any, wanted: Sequence[bool]) -> tuple[Any, list[bool]]:
    """Return what the wanted outputs of a program need, and which inputs they use (JAX 0.10)."""
    from jax.interpreters.partial_eval import dce_jaxpr

    return dce_jaxpr(program, list(wanted))
